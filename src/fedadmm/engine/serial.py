"""One client after the other, in this process: the reference for every other engine."""

from collections.abc import Iterator, Sequence
from typing import Any

from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.engine import PersonalOf, RoundTime, Store, Task
from fedadmm.core.round import Assignment, Buffers, ClientResult, run_client
from fedadmm.core.transport import Transport
from fedadmm.training.evaluation import combined


class SerialEngine:
    """Runs client updates one by one; states go from the store and, written ahead, back to it."""

    took = RoundTime()

    def __init__(
        self, algorithm: AnyAlgorithm, task: Task, store: Store, *, initial: Vector, transport: Transport | None = None
    ) -> None:
        self._algorithm, self._task, self._store, self._initial = algorithm, task, store, initial
        self._transport = transport

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of the assigned clients, in the order of the assignments."""
        for assignment in assignments:
            known, problem = self._store.get(assignment.client), self._task.problem(assignment, buffers=buffers)
            result, state = run_client(
                self._algorithm,
                download,
                assignment,
                state=known,
                initial=self._initial,
                problem=problem,
                transport=self._transport,
            )
            if result.finite:
                self._store.stage(assignment.round, assignment.client, state)
            yield result

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples; nothing where there are none."""
        parts = range(self._task.num_parts)
        return combined(self._task.evaluate_part(part, download.theta, buffers=buffers) for part in parts)

    def evaluate_clients(
        self, download: Any, *, buffers: Buffers, clients: Sequence[int], personal_of: PersonalOf
    ) -> list[dict[str, float]]:
        """Return loss and metrics on the own examples of each of these clients, with the parts that it keeps."""
        return evaluated(self._task, download, buffers=buffers, clients=clients, personal_of=personal_of)

    def close(self) -> None:
        """Do nothing: nothing was started."""


def evaluated(
    task: Task, download: Any, *, buffers: Buffers, clients: Sequence[int], personal_of: PersonalOf
) -> list[dict[str, float]]:
    """Return loss and metrics on the own examples of each of these clients, in this process."""
    theta = download.theta
    return [task.evaluate_client(own, theta, buffers=buffers, personal=personal_of(own)) for own in clients]
