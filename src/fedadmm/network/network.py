"""What the settings of a clock and of faults put around an engine."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.engine import Engine
from fedadmm.core.errors import InputError
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.core.participation import Ids, Participation, Uniform
from fedadmm.core.round import Assignment, ServerCheckpoint
from fedadmm.network.asynchronous import AsynchronousEngine, AsyncSchedule, SentModel
from fedadmm.network.devices import SimulatedDevices
from fedadmm.network.engines import ROUNDING, FaultyEngine, TimedEngine, Timing
from fedadmm.network.settings import Clock, Faults

Assign = Callable[[int, int], Assignment]  # of (round, client)


@dataclass(frozen=True)
class Network:
    """A clock and faults that were checked against the rest of an experiment."""

    seed: int
    clock: Clock | None
    faults: Faults | None
    timing: Timing | None  # where there is a clock
    schedule: AsyncSchedule | None  # of an asynchronous server

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


def make_network(
    clock: Clock | None,
    faults: Faults | None,
    *,
    devices: SimulatedDevices | None,
    seed: int,
    num_examples: Ids,
    bytes_down: int,
    bytes_up: int,
    participation: Participation,
    assign: Assign,
    least_epochs: Callable[[int], int],
) -> Network:
    """Return what is simulated, once it is known that rounds can be played on it; a clock has devices."""
    if clock is None or devices is None:
        return Network(seed, None, faults, None, None)
    num_clients = len(num_examples)
    timing = Timing(devices, num_examples=num_examples, bytes_down=bytes_down, bytes_up=bytes_up)
    schedule = None
    if clock.asynchronous is not None:
        schedule = AsyncSchedule(
            timing,
            clock.asynchronous,
            num_clients=num_clients,
            at_work=_num_at_work(clock.asynchronous.buffer, participation, num_clients),
            assign=assign,
            seed=seed,
        )
    elif clock.deadline is not None:
        _check_deadline(clock, timing, assign, least_epochs, num_clients)
    return Network(seed, clock, faults, timing, schedule)


def _check_deadline(
    clock: Clock, timing: Timing, assign: Assign, least_epochs: Callable[[int], int], num_clients: int
) -> None:
    """Refuse a deadline that no client can meet, even if it is on all the while and asked for as little as may be."""
    assert clock.deadline is not None
    quickest = math.inf
    for client in range(num_clients):
        epochs = 1 if clock.late == "less" else least_epochs(client)
        least = assign(1, client)._replace(epochs=epochs)
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
