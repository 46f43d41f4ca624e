"""One way to listen to a run, and to stop it: callbacks, sinks, a progress bar, a budget of time, Ctrl-C."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np

from fedadmm.core.errors import calling, name_of
from fedadmm.runs.goal import Goal
from fedadmm.runs.records import Record

if TYPE_CHECKING:
    from fedadmm.runs.simulation import Simulation

logger = logging.getLogger(__name__)


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
        with calling(f"callback {name_of(self.function)}, called with (record, simulation),"):
            return self.function(record, simulation)


def play(simulation: Simulation, goal: Goal, *, listeners: Sequence[Listener] = ()) -> None:
    """Play the rounds that are left, until a listener asks to stop; all listeners hear of the last round too."""
    with ExitStack() as listening:
        for listener in listeners:
            listener.started(simulation.history)
            listening.callback(listener.ended)
        while not goal.has_ended(simulation.history):
            record = simulation.advance(last=len(simulation.history) + 1 == goal.rounds)
            answers = [listener.after_round(record, simulation) for listener in listeners]
            if any(isinstance(answer, bool | np.bool_) and answer for answer in answers):
                return


@contextmanager
def handling(*numbers: int, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle some signals, and give them their old handlers back afterwards.

    What the handler raises is raised again where it was ignored, as in a finalizer or a callback of the garbage
    collector, and in the place of what a library made of it.
    """
    raised: list[tuple[BaseException, int]] = []
    repeats: list[threading.Timer] = []
    ignoring = sys.unraisablehook

    def remembering(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            raised.append((error, number))
            raise

    def repeat(ignored: sys.UnraisableHookArgs) -> None:
        number = next((number for error, number in raised if error is ignored.exc_value), None)
        if number is None:
            ignoring(ignored)
            return
        main = threading.main_thread().ident  # it may wait for something by then
        repeats.append(threading.Timer(0.01, signal.pthread_kill, [main, number]))
        repeats[-1].start()

    before = {number: signal.signal(number, remembering) for number in numbers}
    sys.unraisablehook = repeat
    try:
        yield
    except Exception as error:
        if raised:
            raise raised[0][0] from error
        raise
    finally:
        try:
            for timer in repeats:
                timer.cancel()
                timer.join()
        finally:
            sys.unraisablehook = ignoring
            for number, old in before.items():
                signal.signal(number, old)


class StoppedAtOnce(BaseException):
    """The second Ctrl-C, or SIGTERM; `code` is what a shell makes of the signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        self.code = 128 + number


class Interruption(Listener):
    """The first Ctrl-C lets the round end; the second stops at once, and so does SIGTERM."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch for both signals."""
        with handling(signal.SIGINT, signal.SIGTERM, handler=self._on_signal):
            yield

    def after_round(self, record: Record, simulation: Simulation) -> bool:
        """Ask to stop after the first Ctrl-C."""
        return self.asked

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked or number == signal.SIGTERM:
            raise StoppedAtOnce(number)
        self.asked = True
        logger.warning("Finishing this round; Ctrl-C again stops at once, and loses this round only.")


class OutOfTimeError(BaseException):
    """The budget is spent in the midst of a round."""


class TimeBudget(Listener):
    """Seconds that may be spent; a round that would not end in time is not begun, or else is cut short."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def has_time_for(self, seconds: float) -> bool:
        """Return whether this many seconds are left."""
        return self._end is None or time.monotonic() + seconds <= self._end

    def after_round(self, record: Record, simulation: Simulation) -> bool:
        """Ask to stop if a round as long as the last would not end in time."""
        return not self.has_time_for(record.seconds)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise OutOfTimeError in what runs when the time is up; a round that is cut short leaves no trace."""
        if self._end is None:
            yield
            return
        with handling(signal.SIGALRM, handler=_on_alarm):
            signal.setitimer(signal.ITIMER_REAL, max(self._end - time.monotonic(), 1e-3))
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)


def _on_alarm(number: int, frame: FrameType | None) -> None:
    raise OutOfTimeError
