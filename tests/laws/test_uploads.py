"""What becomes of uploads on their way, over every algorithm: what is off changes no bit, and states follow."""

from dataclasses import dataclass

import torch

from fedadmm.core.algorithm import Algorithm, Message
from fedadmm.core.mean import Collector
from fedadmm.core.optional import UploadsMoreThanChange, imbalance, invariant_of, trait
from fedadmm.core.round import Assignment
from fedadmm.core.transport import Sent, Transport, followed, scaled
from play import Play, identical
from worlds import World

ROUNDS = ([1, 3], [0, 3, 4], [], [1, 2])


@dataclass(frozen=True)
class Shortened:
    """Sends a share of each update, as clipping does: another one for each client."""

    by: float

    def __call__(self, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
        factor = self.by / (1 + assignment.client)
        return sent._replace(upload=scaled(sent.upload, factor), state=followed(before, sent.state, factor))


def _imbalance(play: Play, method: Algorithm, world: World) -> float:
    registered = sum(play.weights)
    invariant = invariant_of(method, play.checkpoint.server, initial=world.theta, registered=registered)
    states = [(play.weights[client], state) for client, state in play.states.items()]
    return 0.0 if invariant is None else imbalance(invariant, states, registered=registered)


def test_a_chain_that_does_nothing_is_the_plain_run(method: Algorithm, world: World) -> None:
    plain = world.play(method).rounds(ROUNDS)
    through = world.play(method, transport=Transport()).rounds(ROUNDS)
    assert identical(through.checkpoint, plain.checkpoint)
    assert identical(through.states, plain.states)


def test_the_invariant_holds_where_states_follow_what_was_sent(method: Algorithm, world: World) -> None:
    play = world.play(method, weights=(1, 4, 2, 7, 3), transport=Transport(steps=(Shortened(0.8),)))
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
