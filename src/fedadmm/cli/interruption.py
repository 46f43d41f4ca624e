"""How signals end a command that runs experiments."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fedadmm.cli.console import err, say


class StoppedAtOnce(BaseException):
    """The second Ctrl-C, or SIGTERM; `code` is what a shell makes of the signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        self.code = 128 + number


class Interruption:
    """The first Ctrl-C lets the round end; the second stops at once, and so does SIGTERM."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch for both signals, and give them their meaning back afterwards."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, meaning in before.items():
                signal.signal(number, meaning)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked or number == signal.SIGTERM:
            raise StoppedAtOnce(number)
        self.asked = True
        say("Finishing this round; Ctrl-C again stops at once, and loses this round only.", to=err, style="yellow")
