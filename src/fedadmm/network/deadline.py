"""Rounds in simulated time, each with a deadline or without."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from fedadmm.core.engine import Engine, RoundTime
from fedadmm.core.round import Assignment, Buffers, ClientResult
from fedadmm.network.timing import Timing
from fedadmm.network.wrapper import EngineWrapper

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
