"""From devices, work and bytes to seconds. The time is simulated: no clock of this machine is read."""

import logging
from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, TypeVar

from fedadmm.core.participation import Ids
from fedadmm.core.round import Assignment, ClientResult
from fedadmm.network.devices import Fleet

T = TypeVar("T")
logger = logging.getLogger(__name__)
ROUNDING = 1e-9  # of an epoch: a deadline that is met exactly is met


class Timing:
    """How long the clients of a federation take; a device works only while it is on."""

    def __init__(self, fleet: Fleet, *, num_examples: Ids, bytes_down: int, bytes_up: int) -> None:
        self._fleet, self._num_examples = fleet, num_examples
        self._bytes_down, self._bytes_up = bytes_down, bytes_up

    def end(self, client: int, start: float, *, gradients: int) -> float:
        """Return when a client that is asked at `start` has answered, after so many gradients of single examples."""
        return self._fleet.hours(client).end(start, self._on(client, gradients))

    def planned_end(self, assignment: Assignment, start: float) -> float:
        """Return when a client that is asked at `start` would have answered, after all of its epochs."""
        return self.end(assignment.client, start, gradients=self._planned(assignment))

    def quickest(self, assignment: Assignment) -> float:
        """Return how many seconds a client's epochs and messages take if it is on all the while."""
        return self._on(assignment.client, self._planned(assignment))

    def within(self, assignment: Assignment, start: float, end: float) -> Assignment:
        """Return what a client that is asked at `start` can do and report by `end`: all of it, or whole epochs."""
        client = assignment.client
        seconds = self._fleet.hours(client).between(start, end) - self._exchange(client)
        epochs = seconds * self._fleet.device(client).speed / int(self._num_examples[client]) + ROUNDING
        if epochs * int(self._num_examples[client]) >= self._planned(assignment):
            return assignment
        return assignment._replace(epochs=max(0, int(epochs)))

    def _planned(self, assignment: Assignment) -> int:
        gradients = assignment.epochs * int(self._num_examples[assignment.client])
        return gradients if assignment.gradients is None else min(gradients, assignment.gradients)

    def _on(self, client: int, gradients: int) -> float:
        return self._exchange(client) + gradients / self._fleet.device(client).speed

    def _exchange(self, client: int) -> float:
        return self._fleet.device(client).exchange(bytes_down=self._bytes_down, bytes_up=self._bytes_up)


class Took(NamedTuple):
    """What a clock says of a round; None where there is none."""

    simulated_seconds: float | None = None
    mean_staleness: float | None = None  # updates of the server that the uploads missed, where it is asynchronous
    max_staleness: int | None = None


NO_CLOCK = Took()


class Rounds:
    """What a clock does to rounds: nothing, where there is none."""

    one_by_one: ClassVar[bool] = False  # whether it needs each upload for itself, not a mean over some

    def planned(self, round: int) -> list[Assignment] | None:
        """Return the assignments of a round, if it is the clock that names them."""
        return None

    def in_time(self, assignments: list[Assignment]) -> list[Assignment]:
        """Return what is left of a round's assignments by its deadline."""
        return assignments

    def on(self, engine: T) -> T:
        """Return the engine as the clock lets it run."""
        return engine

    def watched(self, visits: Iterator[ClientResult]) -> Iterator[ClientResult]:
        """Yield the visits as they are, and note when each one's answer arrives."""
        return visits

    def ended(self, *, all_came: bool) -> Took:
        """End the round, and return what it took."""
        return NO_CLOCK

    @property
    def under_way(self) -> tuple[int, ...]:
        """The earlier rounds whose theta some clients still work on."""
        return ()


class TimedRounds(Rounds):
    """Rounds in simulated time: each lasts as long as its slowest awaited client, or until the deadline."""

    def __init__(
        self, timing: Timing, *, deadline: float | None, late: Literal["less", "drop"], now: float = 0.0
    ) -> None:
        """Begin `now`, when the rounds so far have ended."""
        self._timing, self._deadline, self._late, self._now = timing, deadline, late, now
        self._ends: list[float] = []  # of the visits in this round
        self._has_warned = False

    def in_time(self, assignments: list[Assignment]) -> list[Assignment]:
        """Return what is left of a round's assignments by its deadline: those that cannot make it do less, or go."""
        if self._deadline is None:
            return assignments
        end = self._now + self._deadline
        kept = []
        for assignment in assignments:
            possible = self._timing.within(assignment, self._now, end)
            if possible == assignment or (self._late == "less" and possible.epochs):
                kept.append(possible)
        if assignments and not kept and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "round %d: none of its %d clients can meet clock.deadline=%g, so nothing is learned in it; raise the "
                "deadline, ask for fewer epochs%s",
                assignments[0].round,
                len(assignments),
                self._deadline,
                ', or use late = "less"' if self._late == "drop" else ", or leave it out",
            )
        return kept

    def watched(self, visits: Iterator[ClientResult]) -> Iterator[ClientResult]:
        """Yield the visits as they are, and note when each one's answer arrives."""
        for visit in visits:
            gradients = visit.effort.gradient_evaluations
            self._ends.append(self._timing.end(visit.client, self._now, gradients=gradients))
            yield visit

    def ended(self, *, all_came: bool) -> Took:
        """End the round, and return what it took: all of the time to its deadline, if somebody did not come."""
        lasted = max(self._ends, default=self._now) - self._now
        if self._deadline is not None:
            lasted = min(lasted, self._deadline) if all_came else self._deadline
        self._now += lasted
        self._ends = []
        return Took(lasted)
