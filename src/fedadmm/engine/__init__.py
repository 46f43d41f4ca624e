"""How client updates are run."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.names import EngineName
from fedadmm.core.round import Assignment, Buffers, ClientResult
from fedadmm.core.store import Store
from fedadmm.engine.choice import Choice, choose, num_cores
from fedadmm.engine.serial import SerialEngine
from fedadmm.engine.stacked import StackableTask, StackedEngine
from fedadmm.engine.workers import WorkersEngine

__all__ = ["Choice", "Engine", "EngineName", "choose", "make_engine"]


class Engine(Protocol):
    """Runs client updates and evaluates the server's model."""

    def visits(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the answers of the assigned clients, in the order of the assignments."""
        ...

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples; nothing where there are none."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


def make_engine(
    choice: Choice,
    algorithm: Algorithm[Any, Any, Any],
    task: StackableTask,
    store: Store,
    *,
    initial: Vector,
    weight: Callable[[int], float],
    num_workers: int | None,
    lossy: bool = False,
) -> Engine:
    """Return the chosen engine; visits may be lost where it is lossy.

    num_workers: processes, or the threads of a stack; one per core if None.
    """
    if choice.name == "serial":
        return SerialEngine(algorithm, task, store, initial=initial)
    if choice.name == "stacked":
        return StackedEngine(
            algorithm,
            task,
            store,
            initial=initial,
            weight=None if lossy else weight,
            num_threads=num_workers or num_cores(),
        )
    if choice.name == "ray":
        from fedadmm.engine.ray import RayEngine  # an extra

        return RayEngine(algorithm, task, store, initial=initial, weight=weight, num_shares=num_workers)
    return WorkersEngine(algorithm, task, store, initial=initial, num_workers=num_workers or num_cores())
