"""What a clock's settings make of a simulation's rounds."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedadmm.config.compatibility import check_clock
from fedadmm.core.algorithm import Algorithm, Message
from fedadmm.core.errors import InputError
from fedadmm.core.messages import num_bytes
from fedadmm.core.participation import Participation, Uniform
from fedadmm.core.round import Assignment, Buffers, ServerCheckpoint
from fedadmm.core.store import Store
from fedadmm.data.federated import FederatedData
from fedadmm.network.async_schedule import Schedule
from fedadmm.network.asynchronous import AsynchronousRounds, Sent
from fedadmm.network.clock import Clock
from fedadmm.network.faults import Faults
from fedadmm.network.timing import ROUNDING, Rounds, TimedRounds, Timing
from fedadmm.network.traces import fleet_of
from fedadmm.runs.records import Record
from fedadmm.training.local import LocalTraining


class Clockwork(NamedTuple):
    """A clock that has been checked against the rest of an experiment."""

    clock: Clock
    timing: Timing
    schedule: Schedule | None  # of an asynchronous server


def clockwork_of(
    clock: Clock | None,
    algorithm: Algorithm[Any, Any, Any],
    *,
    seed: int,
    data: FederatedData,
    sent: tuple[Any, Message, Buffers],
    participation: Participation,
    assign: Callable[[int, int], Assignment],
    local: LocalTraining,
    faults: Faults | None,
    engine: str,
) -> Clockwork | None:
    """Return what drives the rounds, given what is sent: the download, the upload, and buffers both ways."""
    if clock is None:
        return None
    check_clock(clock, algorithm, faults=faults, engine=engine)
    download, upload, buffers = map(num_bytes, sent)
    timing = Timing(
        fleet_of(clock, seed=seed, num_clients=data.num_clients),
        num_examples=data.num_examples,
        bytes_down=download + buffers,
        bytes_up=upload + buffers,
    )
    if clock.asynchronous is None:
        if clock.deadline is not None:
            _check_deadline(clock, timing, assign, local=local, num_clients=data.num_clients)
        return Clockwork(clock, timing, None)
    at_work = _num_at_work(clock, participation, data.num_clients)
    schedule = Schedule(
        timing, clock.asynchronous, num_clients=data.num_clients, at_work=at_work, assign=assign, seed=seed
    )
    return Clockwork(clock, timing, schedule)


def rounds_on(
    clockwork: Clockwork | None,
    algorithm: Algorithm[Any, Any, Any],
    store: Store,
    *,
    begin: ServerCheckpoint,
    history: Sequence[Record],
) -> Rounds:
    """Return what the clock does to rounds; it goes on where the rounds so far have ended."""
    if clockwork is None:
        return Rounds()
    clock, timing, schedule = clockwork
    if schedule is not None:
        sent = {
            round: Sent(algorithm.download(progress.server), progress.buffers)
            for round, progress in {0: begin, **store.kept()}.items()
        }
        return AsynchronousRounds(algorithm, schedule, round=len(history), sent=sent)
    now = 0.0
    for record in history:  # not sum(): it rounds otherwise than one round after the other
        now += record.simulated_seconds or 0.0
    return TimedRounds(timing, deadline=clock.deadline, late=clock.late, now=now)


def _check_deadline(
    clock: Clock, timing: Timing, assign: Callable[[int, int], Assignment], *, local: LocalTraining, num_clients: int
) -> None:
    """Refuse a deadline that no client can meet, even if it is on all the while and asked for as little as may be."""
    assert clock.deadline is not None
    quickest = math.inf
    for client in range(num_clients):
        epochs = 1 if clock.late == "less" else local.least_epochs(client)
        least = assign(1, client)._replace(epochs=epochs)
        quickest = min(quickest, timing.quickest(least))
        if quickest <= clock.deadline * (1 + ROUNDING):
            return
    raise InputError(
        f"clock.deadline={clock.deadline:g} is met by no client: the quickest takes {quickest:.3g} seconds for "
        "its messages and the least work it may do; use more than that, or leave out clock.deadline"
    )


def _num_at_work(clock: Clock, participation: Participation, num_clients: int) -> int:
    """Return how many clients of an asynchronous server work at a time."""
    assert clock.asynchronous is not None
    if not isinstance(participation, Uniform):
        raise InputError(
            "an asynchronous server keeps a number of clients at work; give participation as a fraction of them"
        )
    at_work, buffer = participation.size(num_clients), clock.asynchronous.buffer
    if buffer > at_work:
        raise InputError(
            f"buffer={buffer} uploads never arrive: participation={participation.fraction:g} keeps {at_work} clients "
            f"at work; use at most {at_work}"
        )
    return at_work
