"""What becomes of uploads on their way, over every algorithm: what is off changes no bit, and states follow."""

from dataclasses import dataclass

import torch

from fedadmm.core.algorithm import Algorithm, Message
from fedadmm.core.mean import Collector
from fedadmm.core.optional import SkipsCommunication, UploadsMoreThanChange, imbalance, invariant_of, trait
from fedadmm.core.round import Assignment
from fedadmm.core.state_parts import HeldBack, without_part
from fedadmm.core.transport import Sent, Transport, followed, scaled
from fedadmm.engine.probe import probe
from fedadmm.uploads.chain import transport_of
from fedadmm.uploads.compression import CompressionStep
from fedadmm.uploads.settings import Attack, Compression, Robust, UploadSettings
from play import Play, identical
from worlds import World

WEIGHTS = (1, 4, 2, 7, 3)
ROUNDS = ([1, 3], [0, 3, 4], [], [1, 2])


@dataclass(frozen=True)
class Shortened:
    """Sends a share of each update, as clipping does: another one for each client."""

    by: float

    def __call__(self, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
        factor = self.by / (1 + assignment.client)
        return sent._replace(upload=scaled(sent.upload, factor), state=followed(before, sent.state, factor))


def _imbalance(play: Play, method: Algorithm, world: World, *, like: Message = ()) -> float:
    registered = sum(play.weights)
    invariant = invariant_of(method, play.checkpoint.server, initial=world.theta, registered=registered)
    states = [(play.weights[client], state) for client, state in play.states.items()]
    if invariant is None or (like and invariant.adds is None):
        return 0.0
    return imbalance(invariant, states, registered=registered, upload=like)


def test_a_chain_that_does_nothing_is_the_plain_run(method: Algorithm, world: World) -> None:
    plain = world.play(method).rounds(ROUNDS)
    through = world.play(method, transport=Transport()).rounds(ROUNDS)
    assert identical(through.checkpoint, plain.checkpoint)
    assert identical(through.states, plain.states)


def test_the_invariant_holds_where_states_follow_what_was_sent(method: Algorithm, world: World) -> None:
    play = world.play(method, weights=WEIGHTS, transport=Transport(steps=(Shortened(0.8),)))
    rounding = 100 * torch.finfo(world.theta.dtype).eps
    gaps = []
    for clients in ROUNDS:
        play.round(clients)
        gaps.append(_imbalance(play, method, world))
    # The trait is that of the methods for which this law does not hold, and of no others.
    assert (max(gaps) < rounding) == (trait(method, UploadsMoreThanChange) is None)


class Void:
    """A collector that never has enough."""

    weight = 0.0

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Take nothing."""

    def mean(self) -> Message:
        raise AssertionError("a void round has no mean")


def test_a_void_round_leaves_no_trace_but_its_number(method: Algorithm, world: World) -> None:
    def wrap(plain: Collector, round: int) -> Collector:
        return Void() if round == 2 else plain

    play = world.play(method, transport=Transport(wraps=(wrap,))).rounds([[1, 3]])
    before, states = play.checkpoint, play.states
    summary = play.round([0, 3])
    assert summary.clients == summary.refused == ()
    assert identical(play.checkpoint, before._replace(round=2))
    assert identical(play.states, states)


def test_the_invariant_counts_what_is_held_back(method: Algorithm, world: World) -> None:
    like = probe(method, world.theta).upload
    step = CompressionStep(Compression(name="top_k", keep=0.3, error_feedback=True), 0, like)
    if trait(method, SkipsCommunication) is not None:
        return  # refused: tests/uploads/test_upload_runs.py
    play = world.play(method, weights=WEIGHTS, transport=Transport(steps=(step,), keeps_held_back=True))
    rounding = 100 * torch.finfo(world.theta.dtype).eps
    for clients in ROUNDS:
        play.round(clients)
        assert _imbalance(play, method, world, like=like) < rounding


FULL = Compression(name="top_k", keep=1.0, error_feedback=True)
UNTOUCHED = (
    UploadSettings(compression=FULL),
    UploadSettings(robust=Robust(name="trimmed_mean", trim=0.0)),
    UploadSettings(robust=Robust(name="norm_clip", norm=1e9), attack=Attack(name="lie", share=0.0)),
    UploadSettings(FULL, Robust(name="norm_clip", norm="1e9x"), Attack(name="noise", share=0.0)),
)


def test_what_changes_no_upload_is_the_plain_run_to_the_bit(method: Algorithm, world: World) -> None:
    (_, client, like), plain = probe(method, world.theta), world.play(method).rounds(ROUNDS)
    for tables in UNTOUCHED:
        if tables.compression is not None and trait(method, SkipsCommunication) is not None:
            continue  # error feedback is refused
        transport = transport_of(tables, seed=0, num_clients=5, like=like, client=type(client))
        through = world.play(method, transport=transport).rounds(ROUNDS)
        # Buffers have no length to be clipped to: their median takes the place of their mean.
        clips = tables.robust is not None and tables.robust.norm is not None
        buffers = plain.checkpoint.buffers if clips else through.checkpoint.buffers
        assert identical(through.checkpoint._replace(buffers=buffers), plain.checkpoint), tables
        own = {client: without_part(state, HeldBack)[0] for client, state in through.states.items()}
        assert identical(own, plain.states), tables
