"""From devices, work and bytes to seconds, and rounds in simulated time, each with a deadline or without.

The time is simulated: no clock of this machine is read.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from fedadmm.core.engine import Engine, RoundTime
from fedadmm.core.participation import Ids
from fedadmm.core.round import Assignment, Buffers, ClientResult
from fedadmm.network.devices import SimulatedDevices
from fedadmm.network.wrapper import EngineWrapper

ROUNDING = 1e-9  # of an epoch: a deadline that is met exactly is met


class Timing:
    """How long the clients of a federation take; a device works only while it is on."""

    def __init__(self, devices: SimulatedDevices, *, num_examples: Ids, bytes_down: int, bytes_up: int) -> None:
        self._devices, self._num_examples = devices, num_examples
        self._bytes_down, self._bytes_up = bytes_down, bytes_up

    def end(self, client: int, start: float, *, gradients: int) -> float:
        """Return when a client that is asked at `start` has answered, after this many gradients of single examples."""
        return self._devices.hours(client).end(start, self._seconds_on(client, gradients))

    def planned_end(self, assignment: Assignment, start: float) -> float:
        """Return when a client that is asked at `start` would have answered, after all of its epochs."""
        return self.end(assignment.client, start, gradients=self._planned(assignment))

    def quickest(self, assignment: Assignment) -> float:
        """Return how many seconds a client's epochs and messages take if it is on all the while."""
        return self._seconds_on(assignment.client, self._planned(assignment))

    def within(self, assignment: Assignment, start: float, end: float) -> Assignment:
        """Return what a client that is asked at `start` can do and report by `end`: all of it, or whole epochs."""
        client = assignment.client
        seconds = self._devices.hours(client).between(start, end) - self._exchange(client)
        epochs = seconds * self._devices.device(client).speed / int(self._num_examples[client]) + ROUNDING
        if epochs * int(self._num_examples[client]) >= self._planned(assignment):
            return assignment
        return assignment._replace(epochs=max(0, int(epochs)))

    def _planned(self, assignment: Assignment) -> int:
        gradients = assignment.epochs * int(self._num_examples[assignment.client])
        return gradients if assignment.gradients is None else min(gradients, assignment.gradients)

    def _seconds_on(self, client: int, gradients: int) -> float:
        return self._exchange(client) + gradients / self._devices.device(client).speed

    def _exchange(self, client: int) -> float:
        return self._devices.device(client).exchange(bytes_down=self._bytes_down, bytes_up=self._bytes_up)


logger = logging.getLogger(__name__)


class TimedEngine(EngineWrapper):
    """An engine whose rounds take simulated time: as long as the slowest awaited client, or until the deadline."""

    def __init__(
        self, engine: Engine, timing: Timing, *, deadline: float | None, late: Literal["less", "drop"], now: float = 0.0
    ) -> None:
        """Begin `now`, when the rounds so far have ended."""
        super().__init__(engine)
        self._timing, self._deadline, self._late, self._now = timing, deadline, late, now
        self._has_warned = False

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of the clients that can meet the deadline, and work out how long the round took."""
        in_time = assignments if self._deadline is None else self._in_time(assignments, self._deadline)
        end, num_results = self._now, 0
        for result in self._engine.run(download, buffers=buffers, assignments=in_time):
            gradients = result.stats.gradient_evaluations
            end = max(end, self._timing.end(result.client, self._now, gradients=gradients))
            num_results += 1
            yield result
        seconds = end - self._now
        if self._deadline is not None:
            # For a client that does not come the server waits until the deadline.
            seconds = min(seconds, self._deadline) if num_results == len(assignments) else self._deadline
        self._now += seconds
        self.took = RoundTime(seconds)

    def _in_time(self, assignments: Sequence[Assignment], deadline: float) -> list[Assignment]:
        """Return what can be done by the deadline: clients that cannot meet it do less, or are left out."""
        kept = []
        for assignment in assignments:
            possible = self._timing.within(assignment, self._now, self._now + deadline)
            if possible == assignment or (self._late == "less" and possible.epochs):
                kept.append(possible)
        if assignments and not kept and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "round %d: none of its %d clients can meet clock.deadline=%g, so nothing is learned in it; raise the "
                "deadline, ask for fewer epochs%s",
                assignments[0].round,
                len(assignments),
                deadline,
                ', or use late = "less"' if self._late == "drop" else ", or leave it out",
            )
        return kept
