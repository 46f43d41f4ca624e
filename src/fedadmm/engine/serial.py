"""One client after the other, in this process: the reference for every other engine."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.round import Assignment, Buffers, Problem, Visit, visit_client
from fedadmm.core.store import Store


class Task(Protocol):
    """What the clients of a run work on."""

    def problem(self, assignment: Assignment, *, buffers: Buffers) -> Problem:
        """Return a client's problem in a round, on a model with these buffers."""
        ...


class SerialEngine:
    """Runs client updates one by one; states go from the store and, written ahead, back to it."""

    def __init__(
        self, algorithm: Algorithm[Any, Any, Any], task: Task, store: Store, *, initial: Vector
    ) -> None:
        self._algorithm, self._task, self._store, self._initial = algorithm, task, store, initial

    def visits(
        self, download: Any, *, buffers: Buffers, assignments: Iterable[Assignment]
    ) -> Iterator[Visit]:
        """Yield the answers of the assigned clients, in the order of the assignments."""
        for assignment in assignments:
            visit, state = visit_client(
                self._algorithm,
                download,
                client=assignment.client,
                state=self._store.get(assignment.client),
                initial=self._initial,
                problem=self._task.problem(assignment, buffers=buffers),
            )
            if visit.finite:
                self._store.stage(assignment.round, assignment.client, state)
            yield visit
