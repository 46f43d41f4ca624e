"""What the settings of a clock and of faults put around an engine."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.engine import Engine
from fedadmm.core.errors import InputError
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.core.participation import Participation, Uniform
from fedadmm.core.round import ServerCheckpoint
from fedadmm.engine.planner import Planner
from fedadmm.network.asynchronous import AsynchronousEngine, AsyncSchedule, SentModel
from fedadmm.network.engines import ROUNDING, FaultyEngine, TimedEngine, Timing
from fedadmm.network.settings import Clock, Faults


@dataclass(frozen=True)
class Network:
    """A clock and faults that were checked against the rest of an experiment."""

    seed: int
    faults: Faults | None
    clock: Clock | None = None
    timing: Timing | None = None  # where there is a clock
    schedule: AsyncSchedule | None = None  # of an asynchronous server

    @property
    def needs_each_upload(self) -> bool:
        """Whether uploads are needed one by one, not as means over some clients."""
        return self.faults is not None or self.schedule is not None

    def around(
        self,
        engine: Engine,
        algorithm: AnyAlgorithm,
        *,
        seconds: float,
        applied: Mapping[int, int],
        kept: Mapping[int, ServerCheckpoint],
    ) -> Engine:
        """Return the engine as the network lets it run, from where the rounds so far have ended.

        seconds: that they took. applied: the round of each client's last update that was applied. kept: the server
            after earlier rounds whose theta some clients still work on.
        """
        if self.schedule is not None:
            sent = {round: SentModel(algorithm.download(was.server), was.buffers) for round, was in kept.items()}
            return AsynchronousEngine(engine, algorithm, self.schedule, sent=sent)
        if self.faults is not None:
            alone = trait(algorithm, SkipsCommunication) is not None
            engine = FaultyEngine(engine, self.faults, seed=self.seed, applied=applied, go_on_alone=alone)
        if self.clock is not None and self.timing is not None:
            engine = TimedEngine(engine, self.timing, deadline=self.clock.deadline, late=self.clock.late, now=seconds)
        return engine


def timed_network(clock: Clock, faults: Faults | None, timing: Timing, planner: Planner, *, seed: int) -> Network:
    """Return what is simulated on a clock, once it is known that rounds can be played on it."""
    schedule, settings = None, clock.asynchronous
    if settings is not None:
        at_work = _num_at_work(settings.buffer, planner.participation, timing.num_clients)
        schedule = AsyncSchedule(timing, settings, at_work=at_work, assign=planner.assignment, seed=seed)
    elif clock.deadline is not None:
        _check_deadline(clock, timing, planner)
    return Network(seed, faults, clock, timing, schedule)


def _check_deadline(clock: Clock, timing: Timing, planner: Planner) -> None:
    """Refuse a deadline that no client can meet, even if it is on all the while and asked for as little as may be."""
    assert clock.deadline is not None
    quickest = math.inf
    for client in range(timing.num_clients):
        epochs = 1 if clock.late == "less" else planner.local.least_epochs(client)
        least = planner.assignment(1, client)._replace(epochs=epochs)
        quickest = min(quickest, timing.quickest(least))
        if quickest <= clock.deadline * (1 + ROUNDING):
            return
    raise InputError(
        f"clock.deadline={clock.deadline:g} is met by no client: the quickest takes {quickest:.3g} seconds for "
        "its messages and the least work it may do; use more than that, or leave out clock.deadline"
    )


def _num_at_work(buffer: int, participation: Participation, num_clients: int) -> int:
    """Return how many clients of an asynchronous server work at a time."""
    if not isinstance(participation, Uniform):
        raise InputError(
            "an asynchronous server keeps a number of clients at work; give participation as a fraction of them"
        )
    at_work = participation.size(num_clients)
    if buffer > at_work:
        raise InputError(
            f"buffer={buffer} uploads never arrive: participation={participation.fraction:g} keeps {at_work} clients "
            f"at work; use at most {at_work}"
        )
    return at_work
