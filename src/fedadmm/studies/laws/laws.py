"""The laws of one algorithm in one small federation: each returns None, or what was seen and the remedy.

A law plays with copies of the algorithm as its fields describe it, so what a method hides outside its states is found.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.optional import SkipsCommunication, imbalance, invariant_of, trait
from fedadmm.core.round import Assignment
from fedadmm.studies.laws.play import NUM_CLIENTS, Play, World, copied, identical

CLEARLY = 1e-3  # rounding is far below it, the effect of a perturbation of size 1 far above
TWO_ROUNDS = ([0, 1, 3], [0, 2, 3])
ROUNDS = (*TWO_ROUNDS, [0, 1, 2, 4])
BALANCED = 1e-5
NOT_CLAIMED = "the algorithm has no `invariant`"  # so there is nothing to hold it to

Upload = Callable[[Any, Any], Any]  # of (download, client's state)


def inputs_stay(algorithm: AnyAlgorithm, world: World) -> str | None:
    """An update leaves its inputs as they are."""
    play = world.play(algorithm).rounds(TWO_ROUNDS)
    for client, state in play.states.items():
        download = algorithm.download(play.checkpoint.server)
        before = copied(download), copied(state), copied(play.checkpoint.buffers)
        problem = world.task.problem(Assignment(client, 3, 1), buffers=play.checkpoint.buffers)
        algorithm.client_update(download, state, problem)
        if not identical(before, (tuple(download), tuple(state), tuple(play.checkpoint.buffers))):
            return "client_update changes its download or its client in place; make a new vector, such as v + x"
    checkpoint = play.checkpoint
    kept, visits = (copied(checkpoint.server), copied(checkpoint.buffers)), play.visits([1, 2, 4])
    uploads = [copied(visit.upload) for visit in visits]
    play.round([1, 2, 4])
    if not identical(kept, (tuple(checkpoint.server), tuple(checkpoint.buffers))):
        return "server_update changes the server in place; make a new vector, such as server.theta + x"
    if not identical(uploads, [tuple(visit.upload) for visit in visits]):
        return "server_update changes uploads in place; make a new vector, such as mean.delta + x"
    return None


def model_is_read_off(algorithm: AnyAlgorithm, world: World) -> str | None:
    """The model that is evaluated begins at theta^0, follows the rounds, and is read off the server alone."""
    begin = algorithm.init_server(world.theta.clone())
    if not torch.equal(algorithm.model(begin), world.theta):
        return "model(server) is not theta^0 before the first round; begin at theta what it is made of"
    server = world.play(algorithm).rounds(ROUNDS).checkpoint.server
    model = algorithm.model(server)
    if not torch.equal(model, replace(algorithm).model(server)):
        return "model(server) is another one when it is asked for again; let it depend on the server alone"
    if torch.equal(model, world.theta):
        return "model(server) is still theta^0 after three rounds; return the point to be evaluated"
    return None


def client_matters(algorithm: AnyAlgorithm, world: World) -> str | None:
    """Everything that a client keeps has a say in what it uploads."""
    if silent := silent_fields(algorithm, world, of="client"):
        fields = ", ".join(silent)
        return f"{fields} of the client's state has no effect on its upload; use it in client_update, or leave it out"
    return None


def download_matters(algorithm: AnyAlgorithm, world: World) -> str | None:
    """Everything that a client is sent has a say in what it uploads."""
    if silent := silent_fields(algorithm, world, of="download"):
        fields = ", ".join(silent)
        return f"{fields} is sent to clients and has no effect on what they upload; return less from download(server)"
    return None


def order_is_free(algorithm: AnyAlgorithm, world: World) -> str | None:
    """The order in which clients run does not matter."""
    rising = world.play(replace(algorithm)).rounds(ROUNDS)
    mixed = world.play(replace(algorithm)).rounds([*clients[:0:-1], clients[0]] for clients in ROUNDS)
    if _same(rising, mixed):
        return None
    return "a client's update depends on who ran before it; keep nothing between calls but what you return"


def nothing_shared(algorithm: AnyAlgorithm, world: World) -> str | None:
    """No two clients share memory, nor a client and the server."""
    play = world.play(algorithm).rounds(ROUNDS)
    owners: dict[int, str] = {}
    for owner, state in [("the server", play.checkpoint.server), *((f"client {c}", s) for c, s in play.states.items())]:
        for field in state:
            if isinstance(field, torch.Tensor) and owners.setdefault(field.data_ptr(), owner) != owner:
                return f"{owners[field.data_ptr()]} and {owner} hold the same vector; return a new one, or a clone()"
    return None


def refused_leaves_no_trace(algorithm: AnyAlgorithm, world: World) -> str | None:
    """A round with an update that is refused is the round without that client."""
    refusing, without = (world.play(replace(algorithm)).rounds(TWO_ROUNDS[:1]) for _ in range(2))
    world.poison(4)
    refused = refusing.round([0, 1, 2, 4]).refused
    without.round([0, 1, 2])
    if refused != (4,):
        return "an update made of NaN is not seen as such; let uploads and states follow from problem.solve"
    if _same(refusing, without):
        return None
    return "a refused update changes the model or a state; keep nothing between calls but what you return"


def lost_leaves_no_trace(algorithm: AnyAlgorithm, world: World) -> str | None:
    """A round whose updates are all lost leaves no trace."""
    play, twin = (world.play(replace(algorithm)).rounds(TWO_ROUNDS[:1]) for _ in range(2))
    play.visits([0, 2, 3])  # lost before their round counts
    for one in (play, twin):
        one.round([1, 2, 4])
    if _same(play, twin):
        return None
    return "an update that was lost changes what comes later; keep nothing between calls but what you return"


def same_bytes_twice(algorithm: AnyAlgorithm, world: World) -> str | None:
    """The same run twice gives the same bytes."""
    plays = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # whatever else the process draws
            plays.append(world.play(replace(algorithm)).rounds(ROUNDS))
    if _same(*plays):
        return None
    return "two runs differ; draw from a stream of (seed, round), and read neither torch's generator nor a clock"


def sums_are_exact(algorithm: AnyAlgorithm, world: World) -> str | None:
    """What the server holds is the mean of what its clients keep, where the algorithm says so."""
    play = world.play(algorithm).rounds(ROUNDS)
    registered = float(NUM_CLIENTS)
    invariant = invariant_of(algorithm, play.checkpoint.server, initial=world.theta, registered=registered)
    if invariant is None:
        return NOT_CLAIMED
    off = imbalance(invariant, [(1.0, state) for state in play.states.values()], registered=registered)
    if off < BALANCED:
        return None
    return (
        f"{invariant.name} is off by {off:.1e} from its clients' mean; add exactly what the clients have added, "
        "times turnout.share"
    )


def silent_fields(algorithm: AnyAlgorithm, world: World, *, of: str) -> list[str]:
    """Return the fields of the client's state, or of its download, that have no effect on its upload in round 3."""
    play = world.play(algorithm).rounds(TWO_ROUNDS)

    def upload(server: Any, state: Any) -> Any:
        problem = world.task.problem(Assignment(0, 3, 1), buffers=world.buffers)
        return algorithm.client_update(server, state, problem)[0]

    server, state = algorithm.download(play.checkpoint.server), play.states[0]
    skipping = trait(algorithm, SkipsCommunication) if of == "download" else None
    receive = (lambda server, state: state) if skipping is None else skipping.receive
    usual, silent = upload(server, receive(server, state)), []
    for name, value in (state if of == "client" else server)._asdict().items():
        changed = {name: perturbed(value)}
        if of == "client":
            other = upload(server, state._replace(**changed))
        else:
            other = upload(server._replace(**changed), receive(server._replace(**changed), state))
        if not differs_clearly(usual, other):
            silent.append(name)
    return silent


def perturbed(value: Any) -> Any:
    """Return another value, clearly away from it."""
    if isinstance(value, torch.Tensor):
        generator = torch.Generator().manual_seed(7)
        return value + torch.randn(value.shape, generator=generator).to(value.dtype)
    return 2 * value or 1


def differs_clearly(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Return whether two messages differ by more than rounding."""
    return any(float(torch.as_tensor(a - b).abs().max()) > CLEARLY for a, b in zip(left, right, strict=True))


def _same(one: Play, other: Play) -> bool:
    return identical(tuple(one.checkpoint), tuple(other.checkpoint)) and identical(one.states, other.states)
