"""What runs the clients of a round: an engine, the task it works on, and what a simulated network adds to a round."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from fedadmm.core.algorithm import Vector
    from fedadmm.core.round import Assignment, Buffers, ClientResult, Problem


class Scores(NamedTuple):
    """The loss and the metrics of some examples, as means."""

    num_examples: int
    means: dict[str, float]


class Task(Protocol):
    """What the clients of a run work on."""

    @property
    def num_parts(self) -> int:
        """The number of parts in which the test examples are evaluated."""
        ...

    def problem(self, assignment: Assignment, *, buffers: Buffers) -> Problem:
        """Return a client's problem in a round, on a model with these buffers."""
        ...

    def cost(self, assignment: Assignment) -> float:
        """Return how much work an assignment is, in any unit."""
        ...

    def buffers(self) -> Buffers:
        """Return buffers of the model's form."""
        ...

    def evaluate_part(self, part: int, theta: Vector, *, buffers: Buffers) -> Scores:
        """Return loss and metrics on a part of the test examples."""
        ...

    def private(self) -> Task:
        """Return a task that shares nothing it writes to, for another process."""
        ...


class RoundTime(NamedTuple):
    """What a round took in simulated time; all is None where no clock is simulated."""

    simulated_seconds: float | None = None
    mean_staleness: float | None = None  # updates of the server that the uploads missed, where it is asynchronous
    max_staleness: int | None = None
    in_use: tuple[int, ...] = ()  # the earlier rounds whose theta some clients still work on


class Engine(Protocol):
    """Runs client updates: assignments and a download go in, the clients' results come out, in the same order.

    A simulated deadline, a faulty network and an asynchronous server are engines around engines (network/).
    """

    took: RoundTime  # by the last round whose results were all taken

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of the assigned clients, in the order of the assignments, each as soon as it is there."""
        ...

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples; nothing where there are none."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
