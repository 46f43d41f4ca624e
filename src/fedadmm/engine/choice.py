"""Which engine runs: the one that was named, or for "auto" the one that the model asks for."""

import logging
from typing import Literal, NamedTuple

from fedadmm.core.errors import InputError
from fedadmm.engine.stacked import StackableTask

EngineName = Literal["workers", "serial", "stacked", "auto"]
STACKED_UP_TO = 50_000  # parameters: beyond it the arithmetic is the cost, and it wants all cores

logger = logging.getLogger(__name__)


class Choice(NamedTuple):
    """An engine, and why it was picked."""

    name: Literal["workers", "serial", "stacked"]
    reason: str | None  # None where it was named

    def __str__(self) -> str:
        return self.name if self.reason is None else f"{self.name}: {self.reason}"


def choose(name: EngineName, task: StackableTask) -> Choice:
    """Return the engine to run a task on; refuse to stack what cannot be stacked."""
    if name == "auto":
        choice = _picked(task)
        logger.info("engine %s", choice)
        return choice
    if name == "stacked":
        task.check_stackable()
    return Choice(name, None)


def _picked(task: StackableTask) -> Choice:
    size = f"{task.num_parameters:,} parameters"
    if task.num_parameters > STACKED_UP_TO:
        return Choice("workers", f"{size} are more than {STACKED_UP_TO:,}")
    try:
        task.check_stackable()
    except InputError as error:
        return Choice("workers", str(error))
    return Choice("stacked", f"{size} are at most {STACKED_UP_TO:,}")
