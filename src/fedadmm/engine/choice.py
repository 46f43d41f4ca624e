"""Which engine runs (the one that was named, or for "auto" the one that the model asks for), and its making."""

import logging
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.engine import Engine, EngineName, Store, num_cores
from fedadmm.core.errors import InputError
from fedadmm.core.transport import Transport
from fedadmm.engine.probe import check_elementwise, probe
from fedadmm.engine.serial import SerialEngine
from fedadmm.engine.stacked import StackedEngine
from fedadmm.engine.workers import WorkersEngine
from fedadmm.training.task import LearningTask

STACKED_UP_TO = 100_000  # parameters, of a method whose clients keep vectors
STATELESS_UP_TO = 300_000  # of one whose clients keep none

logger = logging.getLogger(__name__)


class Choice(NamedTuple):
    """An engine, and why it was picked."""

    name: Literal["workers", "serial", "stacked", "ray"]
    reason: str | None  # None where it was named
    num_shares: int | None = None  # of the clients, for ray

    @property
    def arithmetic(self) -> str:
        """In which order it adds: rounds of one arithmetic do not mix with those of another."""
        if self.name == "ray":
            return f"ray with {self.num_shares} shares"
        return "stacked" if self.name == "stacked" else "exact"

    def __str__(self) -> str:
        return self.name if self.reason is None else f"{self.name}: {self.reason}"


def settings_for(arithmetic: str) -> str:
    """Return the settings of the engines that have an arithmetic."""
    if arithmetic.startswith("ray with "):
        return f'engine = "ray" and workers = {arithmetic.split()[2]}'
    return 'engine = "stacked"' if arithmetic == "stacked" else 'engine = "workers" or "serial"'


def choose(
    name: EngineName,
    algorithm: AnyAlgorithm,
    task: LearningTask,
    *,
    num_workers: int | None = None,
    transport: Transport | None = None,
) -> Choice:
    """Return the engine to run on; refuse to stack what cannot be stacked."""
    if transport is not None:
        if name == "auto":
            return Choice("workers", "what becomes of uploads is worked out client by client")
        if name in ("stacked", "ray"):
            raise InputError(
                f'engine="{name}" averages uploads where they are made, and this experiment does something to each of '
                'them; use engine="workers"'
            )
    if name == "auto":
        choice = _picked(algorithm, task)
        logger.info("engine %s", choice)
        return choice
    if name == "stacked":
        _check_stackable(algorithm, task)
    if name == "ray":
        if find_spec("ray") is None:
            raise InputError('engine="ray" needs Ray; pip install "fedadmm[ray]"')
        from fedadmm.engine.ray import count_shares  # an extra

        return Choice(name, None, count_shares(num_workers))
    return Choice(name, None)


def _picked(algorithm: AnyAlgorithm, task: LearningTask) -> Choice:
    """Return the engine that is the fastest in benchmarks/choice.py, whose table is in docs/SPEED.md.

    A stack saves what Python costs at each step of each client, which is nearly all the time of a small model; serial
    and workers pay it. The larger the model, the more of a step is arithmetic, which workers do as fast. Before that,
    states decide: those of a stack pass through one process, those of workers through all of them. Convolutions are
    grouped in a stack, which is no faster. Where no stack can be made workers are taken, as no test of the model tells
    how much work its clients have: only with very little of it is serial faster.
    """
    number = task.num_parameters
    if number > STATELESS_UP_TO:
        return Choice("workers", f"{number:,} parameters are more than {STATELESS_UP_TO:,}")
    if task.has_convolutions:
        return Choice("workers", "convolutions are no faster in a stack")
    if number > STACKED_UP_TO and _keeps_vectors(algorithm, task):
        return Choice("workers", f"{number:,} parameters are more than {STACKED_UP_TO:,}, and clients keep a state")
    try:
        _check_stackable(algorithm, task)
    except InputError as error:
        return Choice("workers", str(error))
    limit = STACKED_UP_TO if number <= STACKED_UP_TO else STATELESS_UP_TO
    return Choice("stacked", f"{number:,} parameters are at most {limit:,}")


def _keeps_vectors(algorithm: AnyAlgorithm, task: LearningTask) -> bool:
    return any(isinstance(field, torch.Tensor) for field in probe(algorithm, task.model.weights).client)


def _check_stackable(algorithm: AnyAlgorithm, task: LearningTask) -> None:
    task.check_stackable()
    check_elementwise(algorithm)


def make_engine(
    choice: Choice,
    algorithm: AnyAlgorithm,
    task: LearningTask,
    store: Store,
    *,
    initial: Vector,
    weight: Callable[[int], float],
    num_workers: int | None,
    each_upload: bool = False,
    transport: Transport | None = None,
) -> Engine:
    """Return the chosen engine.

    num_workers: processes, or the threads of a stack; one per core if None. each_upload: whether uploads are needed one
        by one, not as means over some clients.
    """
    num = num_workers or num_cores()
    if choice.name == "serial":
        return SerialEngine(algorithm, task, store, initial=initial, transport=transport)
    if choice.name == "stacked":
        means = None if each_upload else weight
        return StackedEngine(algorithm, task, store, initial=initial, weight=means, num_threads=num)
    if choice.name == "ray":
        from fedadmm.engine.ray import RayEngine  # an extra

        return RayEngine(algorithm, task, store, initial=initial, weight=weight, num_shares=choice.num_shares or 1)
    try:
        return WorkersEngine(algorithm, task, store, initial=initial, num_workers=num, transport=transport)
    except (OSError, RuntimeError, AssertionError) as error:  # the last in a daemon, which may have no children
        if left := re.search(r"file </(torch_\w+)>", str(error)):
            Path("/dev/shm", left[1]).unlink(missing_ok=True)  # torch leaves the file that it could not fill
        raise InputError(
            f"cannot start {num} worker processes: {str(error).splitlines()[0]}; free /dev/shm, allow more open files "
            '(ulimit -n), use fewer workers, or engine = "serial"'
        ) from error
