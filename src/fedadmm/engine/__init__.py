"""How client updates are run."""

from collections.abc import Callable

from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.engine import Engine, EngineName, Store, num_cores
from fedadmm.engine.choice import Choice, choose
from fedadmm.engine.serial import SerialEngine
from fedadmm.engine.stacked import StackableTask, StackedEngine
from fedadmm.engine.workers import WorkersEngine

__all__ = ["Choice", "EngineName", "choose", "make_engine"]


def make_engine(
    choice: Choice,
    algorithm: AnyAlgorithm,
    task: StackableTask,
    store: Store,
    *,
    initial: Vector,
    weight: Callable[[int], float],
    num_workers: int | None,
    each_upload: bool = False,
) -> Engine:
    """Return the chosen engine.

    num_workers: processes, or the threads of a stack; one per core if None. each_upload: whether uploads are needed one
        by one, not as means over some clients.
    """
    if choice.name == "serial":
        return SerialEngine(algorithm, task, store, initial=initial)
    if choice.name == "stacked":
        return StackedEngine(
            algorithm,
            task,
            store,
            initial=initial,
            weight=None if each_upload else weight,
            num_threads=num_workers or num_cores(),
        )
    if choice.name == "ray":
        from fedadmm.engine.ray import RayEngine  # an extra

        return RayEngine(algorithm, task, store, initial=initial, weight=weight, num_shares=choice.num_shares or 1)
    return WorkersEngine(algorithm, task, store, initial=initial, num_workers=num_workers or num_cores())
