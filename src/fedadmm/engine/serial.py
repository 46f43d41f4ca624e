"""One client after the other, in this process: the reference for every other engine."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.round import Assignment, Buffers, ClientResult, Problem, visit_client
from fedadmm.core.store import Store
from fedadmm.training.evaluation import Scores, combined


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

    def private(self) -> "Task":
        """Return a task that shares nothing it writes to, for another process."""
        ...


class SerialEngine:
    """Runs client updates one by one; states go from the store and, written ahead, back to it."""

    def __init__(self, algorithm: Algorithm[Any, Any, Any], task: Task, store: Store, *, initial: Vector) -> None:
        self._algorithm, self._task, self._store, self._initial = algorithm, task, store, initial

    def visits(self, download: Any, *, buffers: Buffers, assignments: Iterable[Assignment]) -> Iterator[ClientResult]:
        """Yield the answers of the assigned clients, in the order of the assignments."""
        for assignment in assignments:
            visit, state = visit_client(
                self._algorithm,
                download,
                assignment,
                state=self._store.get(assignment.client),
                initial=self._initial,
                problem=self._task.problem(assignment, buffers=buffers),
            )
            if visit.finite:
                self._store.stage(assignment.round, assignment.client, state)
            yield visit

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples; nothing where there are none."""
        parts = range(self._task.num_parts)
        return combined(self._task.evaluate_part(part, download.theta, buffers=buffers) for part in parts)

    def close(self) -> None:
        """Do nothing: nothing was started."""
