"""One communication round, readable top to bottom."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from fedadmm.core.algorithm import AnyAlgorithm, LocalProblem, Message, Turnout, Vector
from fedadmm.core.errors import calling
from fedadmm.core.mean import Collector, MeanInOrder, is_finite, norm_of, num_bytes
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.core.state_parts import HeldBack, Personal, with_parts, without_part
from fedadmm.core.transport import Arrays, Sent, Transport

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
    max_gradients: int | None = None  # of single examples, that it has the time for; None: any number
    informed: bool = True  # whether the server's state has reached it since its last update
    sends: bool = True  # whether what it makes is sent
    last_round: int | None = None  # in which its last update counted; None: none did
    max_norm: float = math.inf  # the norm above which its upload is refused
    clip: float | None = None  # the norm to which it shortens its upload, where that changes from round to round

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
    within_clip: bool | None = None  # whether they were no longer than Assignment.clip before they were shortened


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
    wire: Arrays | None = None  # what travels, where it is not the upload field by field
    bytes_up: int | None = None  # of what travels, without the buffers; None: those of the upload


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
    released: Mapping[str, float] = MappingProxyType({})  # by differential privacy: what was spent so far
    budget_spent: bool = False  # one more round would cost more than [privacy] allows


def run_client(
    algorithm: AnyAlgorithm,
    download: Any,
    assignment: Assignment,
    *,
    state: Message | None,
    initial: Vector,
    problem: Problem,
    transport: Transport | None = None,
) -> tuple[ClientResult, Message]:
    """Run one client's update; `state` is what it returned last time, None if it never took part.

    transport: what becomes of the upload on its way, None if nothing does.
    """
    first_visit = state is None
    if state is None:
        state = algorithm.init_client(initial if algorithm.newcomer == "initial" else download.theta)
    state, held_back = without_part(state, HeldBack)
    state, personal = without_part(state, Personal)
    if personal is not None:
        problem.personal = personal
    known = received(algorithm, download, state, assignment)
    before = _constant_parts(problem)
    with calling(
        f"client_update of {type(algorithm).__name__}, for client {assignment.client} in round {assignment.round},"
    ):
        upload, state = algorithm.client_update(download, known, problem)
    stats = problem.stats()
    finite = is_finite((*upload, *state, *map(changed, _constant_parts(problem), before)))
    sent = Sent(upload, state, None if held_back is None else held_back.held_back)
    if transport is not None and finite and assignment.sends:
        sent = transport.send(sent, before=known, assignment=assignment)
        finite = is_finite(sent.upload) and is_finite(sent.state)
    stats = stats._replace(upload_norm=norm_of(sent.upload), within_clip=sent.within_clip)
    oversized = stats.upload_norm > assignment.max_norm or not sent.fits
    result = ClientResult(
        assignment.client,
        sent.upload,
        stats,
        first_visit,
        finite and not oversized,
        silent=not assignment.sends,
        oversized=oversized,
        wire=sent.wire,
        bytes_up=None if sent.wire is None else num_bytes(tuple(sent.wire.values())),
    )
    kept = None if sent.held_back is None else HeldBack(sent.held_back)
    return result, with_parts(sent.state, problem.personal, kept)


def _constant_parts(problem: Problem) -> tuple[Vector, ...]:
    """Return buffers, and the parts that a client keeps."""
    return problem.stats().buffers.floats, *(problem.personal or ())


def changed(after: Vector, before: Vector) -> Vector:
    """Return what changed, which alone is judged: a buffer's own may be infinite, such as an attention mask."""
    return after[(after != before) & ~(after.isnan() & before.isnan())] if after.numel() else after


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
    return skipping.receive(download, state) if skipping is not None and assignment.informed else state


def run_round(
    algorithm: AnyAlgorithm,
    checkpoint: ServerCheckpoint,
    results: Iterable[ClientResult],
    *,
    weight: Callable[[int], float],
    registered: float,
    transport: Transport | None = None,
    asked: Sequence[int] = (),
) -> tuple[ServerCheckpoint, RoundSummary]:
    """Apply the results of one round, which come in rising order of their clients' ids.

    asked: who was sent the download, whether an answer came or not; if nobody is named, those who answered.
    """
    number, server, (floats, integers), seen = checkpoint
    uploads: Collector = MeanInOrder()
    buffers: Collector = MeanInOrder()
    private = None if transport is None else transport.private
    if transport is not None:
        uploads = transport.collector(uploads, number + 1, asked=asked)
        buffers = transport.buffer_collector(buffers, number + 1)
    down = num_bytes(algorithm.download(server)) + num_bytes(checkpoint.buffers)
    done: list[ClientResult] = []  # without their uploads
    bytes_up = num_uploads = 0

    for result in results:
        done.append(result._replace(upload=(), wire=None))
        if not result.silent:
            bytes_up += num_bytes(result.upload) if result.bytes_up is None else result.bytes_up
            bytes_up += num_bytes(result.stats.buffers)
        members = (result.client,) if result.mean_of is None else result.mean_of
        if result.finite and not result.silent and members:
            uploads.add(result.upload, weight=sum(map(weight, members)), clients=members)
            num_uploads += len(members)
            if floats.numel():
                buffers.add((result.stats.buffers.floats,), weight=sum(map(weight, members)), clients=members)

    num_asked = len(asked) or sum(not result.silent for result in done)
    refused = [result for result in done if not result.finite]
    # With no weight behind its mean a round is void: what was sent in it counts as lost.
    counting = [result for result in done if result.finite and (result.silent or uploads.weight)]
    applied = [result for result in counting if not result.silent]
    for result in counting:
        seen += weight(result.client) if result.first_visit else 0.0
    if applied:
        integers = applied[0].stats.buffers.integers
    if uploads.weight:
        with calling(f"server_update of {type(algorithm).__name__}, in round {number + 1},"):
            told = (seen, num_uploads) if private is None else (private.seen(number + 1), private.cohort)
            turnout = Turnout(number + 1, uploads.weight, registered, *told)
            server = algorithm.server_update(server, uploads.mean(), turnout)
        if buffers.weight:
            (floats,) = buffers.mean()
    # What is added up under masks is known as a sum: no client's own norm and steps.
    is_hidden = transport is not None and transport.sums is not None
    summary = RoundSummary(
        _ids(applied),
        _ids(refused),
        _mean_loss(counting, weight),
        sum(result.stats.steps for result in done),
        sum(result.stats.gradient_evaluations for result in done),
        bytes_up,
        down * num_asked,
        {} if is_hidden else achieved([result.stats for result in counting]),
        _ids(result for result in counting if result.silent),
        _ids(result for result in refused if result.oversized),
        median(result.stats.upload_norm for result in applied) if applied and not is_hidden else None,
    )
    if private is not None:
        summary = private.released(number + 1, summary, applied)
    return ServerCheckpoint(number + 1, server, Buffers(floats, integers), seen), summary


def _ids(results: Iterable[ClientResult]) -> tuple[int, ...]:
    return tuple(result.client for result in results)


def _mean_loss(counting: Sequence[ClientResult], weight: Callable[[int], float]) -> float | None:
    if not counting:
        return None
    weights = [weight(result.client) for result in counting]
    return sum(own * result.stats.loss for own, result in zip(weights, counting, strict=True)) / sum(weights)


ACHIEVED = tuple(f"{name}_{of}" for name in ("epsilon", "steps") for of in ("min", "median", "max"))


def achieved(counting: Sequence[ClientStats]) -> dict[str, float]:
    """Return the least, the median and the largest epsilon and number of steps; nothing if no epsilon is known."""
    epsilons = [stats.epsilon for stats in counting if stats.epsilon is not None]
    if not epsilons:
        return {}
    columns: tuple[Sequence[float], ...] = (epsilons, [stats.steps for stats in counting])
    return dict(zip(ACHIEVED, [of(column) for column in columns for of in (min, median, max)], strict=True))
