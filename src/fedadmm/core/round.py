"""One communication round, readable top to bottom."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from fedadmm.core.algorithm import AnyAlgorithm, LocalProblem, Message, Turnout, Vector
from fedadmm.core.errors import calling
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.core.personal import Personal, joined, parted

M = TypeVar("M", bound=Message)


OVERSIZED = 1e6  # norms of the model, or 1 where that is smaller: no useful update is as large
REMEMBERED = 10  # rounds over which the median norm runs


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
    largest: float = math.inf  # the norm above which its upload is refused

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
    upload_norm: float = 0.0  # of the vectors that it sends


class Problem(LocalProblem, Protocol):
    """A local problem that tells afterwards what was done with it."""

    personal: Personal | None  # the parts of the model that the client keeps; before it is solved, the initial ones

    def stats(self) -> ClientStats: ...


class ClientResult(NamedTuple):
    """One client's answer in a round."""

    client: int
    upload: Message
    stats: ClientStats
    first_visit: bool  # no update of this client has counted before
    finite: bool  # and not too large; else refused: it leaves no trace
    # Whose mean upload and buffers it brings: its own if None; () if another result brings them.
    mean_of: tuple[int, ...] | None = None
    silent: bool = False  # nothing was sent: its state counts, and its upload does not
    oversized: bool = False  # refused because its upload is longer than was allowed


class ServerCheckpoint(NamedTuple):
    """What the server remembers between rounds."""

    round: int  # rounds done
    server: Any
    buffers: Buffers
    seen: float  # weight of the clients whose work has counted at least once


class RoundSummary(NamedTuple):
    """What happened in a round."""

    clients: tuple[int, ...]  # whose uploads were applied
    refused: tuple[int, ...]  # whose uploads were not finite, or too large
    client_loss: float | None  # weighted mean over the clients whose work counts
    steps: int
    gradient_evaluations: int
    bytes_up: int
    bytes_down: int
    # By the clients whose work counts: spread of epsilon and of their steps; {} if nobody asked.
    achieved: dict[str, float]
    silent: tuple[int, ...] = ()  # who computed, and sent nothing
    oversized: tuple[int, ...] = ()  # whose uploads were refused because they were too large
    upload_norm: float | None = None  # the median of those that were applied


def run_client(
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
    state, personal = parted(state)
    if personal is not None:
        problem.personal = personal
    state = received(algorithm, download, state, assignment)
    before = problem.stats().buffers.floats
    with calling(
        f"client_update of {type(algorithm).__name__}, for client {assignment.client} in round {assignment.round},"
    ):
        upload, state = algorithm.client_update(download, state, problem)
    state = joined(state, problem.personal)
    stats = problem.stats()._replace(upload_norm=norm_of(upload))
    after = stats.buffers.floats
    # Only what changed is judged: an infinity may be a buffer's own, such as an attention mask.
    finite = is_finite(upload) and is_finite(state) and is_finite((after[after != before],))
    oversized, silent = stats.upload_norm > assignment.largest, not assignment.sends
    result = ClientResult(
        assignment.client, upload, stats, first_visit, finite and not oversized, silent=silent, oversized=oversized
    )
    return result, state


def norm_limit(max_norm: float | str | None, *, theta: Vector, medians: Iterable[float | None]) -> float:
    """Return the norm above which an upload is refused: `max_norm`, or a multiple of a running median, such as "100x".

    None is a million times the norm of theta. medians: of the norms that were applied in each round so far.
    """
    if isinstance(max_norm, float | int):
        return max_norm
    # Rounds are read only where they matter: there may be many.
    known = [] if max_norm is None else [norm for norm in medians if norm is not None][-REMEMBERED:]
    if max_norm is None or not known:
        return OVERSIZED * max(1.0, norm_of((theta,)))
    return float(max_norm.removesuffix("x")) * median(known)


def received(algorithm: AnyAlgorithm, download: Any, state: Message, assignment: Assignment) -> Message:
    """Return a client's state once the download has reached it."""
    skipping = trait(algorithm, SkipsCommunication)
    return skipping.receive(download, state) if skipping is not None and assignment.hears else state


def run_round(
    algorithm: AnyAlgorithm,
    checkpoint: ServerCheckpoint,
    results: Iterable[ClientResult],
    *,
    weight: Callable[[int], float],
    registered: float,
) -> tuple[ServerCheckpoint, RoundSummary]:
    """Apply the results of one round, which come in rising order of their clients' ids."""
    uploads, buffers = MeanInOrder(), MeanInOrder()
    number, server, (floats, integers), seen = checkpoint
    down = num_bytes(algorithm.download(server)) + num_bytes(checkpoint.buffers)
    done: list[ClientResult] = []  # without their uploads
    bytes_up = bytes_down = 0

    for result in results:
        done.append(result._replace(upload=()))
        if not result.silent:
            bytes_down += down
            bytes_up += num_bytes(result.upload) + num_bytes(result.stats.buffers)
        if result.finite and result.first_visit:
            seen += weight(result.client)
        members = (result.client,) if result.mean_of is None else result.mean_of
        if result.finite and not result.silent and members:
            uploads.add(result.upload, weight=sum(map(weight, members)))
            if floats.numel():
                buffers.add((result.stats.buffers.floats,), weight=sum(map(weight, members)))

    refused = [result for result in done if not result.finite]
    counting = [result for result in done if result.finite]
    applied = [result for result in counting if not result.silent]
    if applied:
        integers = applied[0].stats.buffers.integers
        with calling(f"server_update of {type(algorithm).__name__}, in round {number + 1},"):
            turnout = Turnout(number + 1, uploads.weight, registered, seen)
            server = algorithm.server_update(server, uploads.mean(), turnout)
        if floats.numel():
            (floats,) = buffers.mean()
    summary = RoundSummary(
        _ids(applied),
        _ids(refused),
        _mean_loss(counting, weight),
        sum(result.stats.steps for result in done),
        sum(result.stats.gradient_evaluations for result in done),
        bytes_up,
        bytes_down,
        achieved([result.stats for result in counting]),
        _ids(result for result in counting if result.silent),
        _ids(result for result in refused if result.oversized),
        median(result.stats.upload_norm for result in applied) if applied else None,
    )
    return ServerCheckpoint(number + 1, server, Buffers(floats, integers), seen), summary


def _ids(results: Iterable[ClientResult]) -> tuple[int, ...]:
    return tuple(result.client for result in results)


def _mean_loss(counting: Sequence[ClientResult], weight: Callable[[int], float]) -> float | None:
    if not counting:
        return None
    weights = [weight(result.client) for result in counting]
    return sum(own * result.stats.loss for own, result in zip(weights, counting, strict=True)) / sum(weights)


def achieved(counting: Sequence[ClientStats]) -> dict[str, float]:
    """Return the least, the median and the largest epsilon and number of steps; nothing if no epsilon is known."""
    epsilons = [stats.epsilon for stats in counting if stats.epsilon is not None]
    if not epsilons:
        return {}
    columns: dict[str, Sequence[float]] = {"epsilon": epsilons, "steps": [stats.steps for stats in counting]}
    return {f"{name}_{of.__name__}": of(column) for name, column in columns.items() for of in (min, median, max)}


def num_bytes(message: Message) -> int:
    """Return the bytes that the fields of a message take on the wire; a scalar takes eight."""
    return sum(8 if _is_number(field) else field.nbytes for field in message)


def is_finite(message: Message) -> bool:
    """Return whether no field of the message holds a NaN or an infinity."""
    return all(math.isfinite(field) if _is_number(field) else _is_finite(field) for field in message)


def norm_of(message: Message) -> float:
    """Return the norm of the vectors of a message together."""
    return math.hypot(*(float(field.norm()) for field in message if not _is_number(field)))


def _is_number(field: Any) -> bool:
    return isinstance(field, int | float)


def _is_finite(vector: Vector) -> bool:
    # A finite sum proves finite terms in one pass; large terms may overflow it, so then look at each.
    return math.isfinite(vector.sum()) or bool(vector.isfinite().all())


class MeanInOrder:
    """A weighted mean of messages, summed over a binary tree whose shape depends on their number alone.

    Partial sums of equal height are merged at once, so n messages never hold more than log2(n + 1) vectors,
    and the same messages in the same order give the same bits wherever they were computed.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._partial: list[tuple[int, Message]] = []  # (height, sum), heights falling

    def add(self, message: Message, *, weight: float) -> None:
        """Add a message as the next leaf; it is not kept, so its memory may be used again."""
        self.weight += weight
        height = 0
        while self._partial and self._partial[-1][0] == height:
            message = _added(self._partial.pop()[1], message, alpha=weight if height == 0 else 1.0)
            height += 1
        if height == 0:
            message = _rebuild(message, (field * weight for field in message))  # in memory of its own
        self._partial.append((height, message))

    def mean(self) -> Message:
        """Return the mean of what was added."""
        total = self._partial[-1][1]
        for _, left in reversed(self._partial[:-1]):
            total = _rebuild(left, (a + b for a, b in zip(left, total, strict=True)))
        return _rebuild(total, (field / self.weight for field in total))


def _added(left: M, right: M, *, alpha: float) -> M:
    """Return left + alpha times right; left is our own, so its vectors are added to in place."""
    return _rebuild(
        left, (a + alpha * b if _is_number(a) else a.add_(b, alpha=alpha) for a, b in zip(left, right, strict=True))
    )


def _rebuild(like: M, fields: Iterator[Any]) -> M:
    return cast(M, tuple(fields)) if type(like) is tuple else type(like)(*fields)
