"""One way to listen to a run: callbacks, sinks, a progress bar, a budget and an interruption are all listeners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedadmm.runs.records import Record
from fedadmm.runs.status import Goal

if TYPE_CHECKING:
    from fedadmm.runs.simulation import Simulation


class Listener:
    """Is told of a run and may ask it to stop; it changes nothing of it. Define the methods that you need."""

    def started(self, history: Sequence[Record]) -> None:
        """Take the rounds that are there already; the first new one comes next."""

    def after_round(self, record: Record, simulation: Simulation) -> object:
        """Take a round, which counts; True asks to stop, and every other value to go on."""

    def ended(self) -> None:
        """Finish what is under way: no round follows. It is called after a failure too, if `started` was."""


@dataclass(frozen=True)
class Callback(Listener):
    """A function that is called after every round."""

    function: Callable[[Record, Simulation], object]

    def after_round(self, record: Record, simulation: Simulation) -> object:
        """Return what the function says."""
        return self.function(record, simulation)


def play(simulation: Simulation, goal: Goal, *, listeners: Sequence[Listener] = ()) -> None:
    """Play the rounds that are left, until a listener asks to stop; all listeners hear of the last round too."""
    with ExitStack() as listening:
        for listener in listeners:
            listener.started(simulation.history)
            listening.callback(listener.ended)
        while not goal.has_ended(simulation.history):
            record = simulation.advance()
            answers = [listener.after_round(record, simulation) for listener in listeners]
            if any(isinstance(answer, bool | np.bool_) and answer for answer in answers):
                return
