"""One communication round, readable top to bottom."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple, Protocol

from fedadmm.core.algorithm import AnyAlgorithm, LocalProblem, Message, Turnout, Vector
from fedadmm.core.messages import MeanInOrder, is_finite, num_bytes
from fedadmm.core.optional import SkipsCommunication, trait


class Buffers(NamedTuple):
    """A model's buffers, which travel beside theta and never get a dual."""

    floats: Vector  # running statistics: averaged like uploads
    integers: Vector  # counters: taken from the lowest id


class Assignment(NamedTuple):
    """What a client is asked to do in a round."""

    client: int
    round: int  # counted from 1
    epochs: int
    gradients: int | None = None  # of single examples, that it has the time for; None: for any number
    hears: bool = True  # whether the server's state has reached it since its last update
    sends: bool = True  # whether what it makes is sent
    last_round: int | None = None  # in which its last update counted; None: none did

    @property
    def first_visit(self) -> bool:
        """Whether no update of this client has counted yet."""
        return self.last_round is None


def never(client: int) -> int | None:
    """Return the round in which a client's last update counted, before any has."""
    return None


class ClientStats(NamedTuple):
    """What a client's update took, and the buffers that it left behind."""

    steps: int
    gradient_evaluations: int  # gradients of single examples
    loss: float  # mean training loss over the local steps
    buffers: Buffers
    epsilon: float | None = None  # |grad L|^2 where the local solve ended (equation 6), None if nobody asked


class Problem(LocalProblem, Protocol):
    """A local problem that tells afterwards what was done with it."""

    def effort(self) -> ClientStats: ...


class ClientResult(NamedTuple):
    """One client's answer in a round."""

    client: int
    upload: Message
    effort: ClientStats
    first_visit: bool  # no update of this client has counted before
    finite: bool  # else refused: it leaves no trace
    # Whose mean upload and buffers it brings: its own if None; () if another visit brings them.
    mean_of: tuple[int, ...] | None = None
    silent: bool = False  # nothing was sent: its state counts, and its upload does not


class ServerCheckpoint(NamedTuple):
    """What the server remembers between rounds."""

    round: int  # rounds done
    server: Any
    buffers: Buffers
    seen: float  # weight of the clients whose work has counted at least once


class RoundSummary(NamedTuple):
    """What happened in a round."""

    clients: tuple[int, ...]  # whose uploads were applied
    refused: tuple[int, ...]  # whose uploads were not finite
    client_loss: float | None  # mean over the clients whose work counts
    steps: int
    gradient_evaluations: int
    bytes_up: int
    bytes_down: int
    achieved: dict[
        str, float
    ]  # by the clients whose work counts: spread of epsilon and of their steps; {} if nobody asked
    silent: tuple[int, ...] = ()  # who computed, and sent nothing


def visit_client(
    algorithm: AnyAlgorithm,
    download: Any,
    assignment: Assignment,
    *,
    state: Message | None,
    initial: Vector,
    problem: Problem,
) -> tuple[ClientResult, Message]:
    """Run one client's update; `state` is what it returned last time, None if it never took part."""
    first_visit = state is None
    if state is None:
        state = algorithm.init_client(initial if algorithm.newcomer == "initial" else download.theta)
    state = received(algorithm, download, state, assignment)
    before = problem.effort().buffers.floats
    upload, state = algorithm.client_update(download, state, problem)
    effort = problem.effort()
    after = effort.buffers.floats
    # Only what changed is judged: an infinity may be a buffer's own, such as an attention mask.
    finite = is_finite(upload) and is_finite(state) and is_finite((after[after != before],))
    return ClientResult(assignment.client, upload, effort, first_visit, finite, silent=not assignment.sends), state


def received(algorithm: AnyAlgorithm, download: Any, state: Message, assignment: Assignment) -> Message:
    """Return a client's state once the download has reached it."""
    skipping = trait(algorithm, SkipsCommunication)
    return skipping.receive(download, state) if skipping is not None and assignment.hears else state


def run_round(
    algorithm: AnyAlgorithm,
    progress: ServerCheckpoint,
    visits: Iterable[ClientResult],
    *,
    weight: Callable[[int], float],
    registered: float,
) -> tuple[ServerCheckpoint, RoundSummary]:
    """Apply the visits of one round, which come in rising order of their clients' ids."""
    uploads, buffers = MeanInOrder(), MeanInOrder()
    floats, integers = progress.buffers
    applied: list[int] = []
    refused: list[int] = []
    silent: list[int] = []
    efforts: list[ClientStats] = []
    counting: list[ClientStats] = []  # of those whose work counts
    seen = progress.seen
    bytes_up = bytes_down = 0
    down = num_bytes(algorithm.download(progress.server)) + num_bytes(progress.buffers)

    for visit in visits:
        efforts.append(visit.effort)
        if not visit.silent:
            bytes_down += down
            bytes_up += num_bytes(visit.upload) + num_bytes(visit.effort.buffers)
        if not visit.finite:
            refused.append(visit.client)
            continue
        counting.append(visit.effort)
        if visit.first_visit:
            seen += weight(visit.client)
        if visit.silent:
            silent.append(visit.client)
            continue
        members = (visit.client,) if visit.mean_of is None else visit.mean_of
        if members:
            uploads.add(visit.upload, weight=sum(map(weight, members)))
        if members and floats.numel():
            buffers.add((visit.effort.buffers.floats,), weight=sum(map(weight, members)))
        if not applied:
            integers = visit.effort.buffers.integers
        applied.append(visit.client)

    server = progress.server
    if applied:
        turnout = Turnout(progress.round + 1, uploads.weight, registered, seen)
        server = algorithm.server_update(server, uploads.mean(), turnout)
        if floats.numel():
            (floats,) = buffers.mean()
    return (
        ServerCheckpoint(progress.round + 1, server, Buffers(floats, integers), seen),
        RoundSummary(
            tuple(applied),
            tuple(refused),
            sum(effort.loss for effort in counting) / len(counting) if counting else None,
            sum(e.steps for e in efforts),
            sum(e.gradient_evaluations for e in efforts),
            bytes_up,
            bytes_down,
            achieved(counting),
            tuple(silent),
        ),
    )


def achieved(efforts: Sequence[ClientStats]) -> dict[str, float]:
    """Return the least, the median and the largest epsilon and number of steps; nothing if no epsilon is known."""
    epsilons = [effort.epsilon for effort in efforts if effort.epsilon is not None]
    if not epsilons:
        return {}
    columns: dict[str, Sequence[float]] = {"epsilon": epsilons, "steps": [effort.steps for effort in efforts]}
    return {f"{name}_{of.__name__}": of(column) for name, column in columns.items() for of in (min, median, max)}
