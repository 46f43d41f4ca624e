"""Processes that start in no time, as they are forked from a server that has imported fedadmm once."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_server = multiprocessing.get_context("forkserver")
_imported = ["fedadmm.cli.run", "fedadmm.runs.runner", "fedadmm.report.page", "fedadmm.api.comparison"]
_server.set_forkserver_preload([*_imported, "numpy.random", "sklearn.datasets"])


def start(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process that calls a function of a module."""
    process = _server.Process(target=function, args=arguments)
    process.start()
    return process


def command(*arguments: object, log: Path, before: Callable[[], None] | None = None) -> BaseProcess:
    """Start `fedadmm` with these arguments; what it prints goes to `log`, and `before` is called in it first."""
    return start(_command, tuple(map(str, arguments)), log, before)


def _command(arguments: tuple[str, ...], log: Path, before: Callable[[], None] | None) -> None:
    from fedadmm import cli

    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["fedadmm", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    multiprocessing.set_start_method("fork", force=True)  # and would pass its own way of starting on
    if before is not None:
        before()
    try:
        cli.main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class Answering:
    """A process that answers questions with a function, and is replaced if one of them kills it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._process: BaseProcess | None = None

    def ask(self, question: Any, *, seconds: float = 60.0) -> Any:
        """Return the answer; None if the process died over it, or said nothing for so long."""
        if self._process is None or not self._process.is_alive():
            self._here, there = _server.Pipe()
            self._process = start(_answer, self._function, there)
            there.close()
        self._here.send(question)
        try:
            if self._here.poll(seconds):
                return self._here.recv()
        except EOFError:
            pass
        self.close()
        return None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._here.close()
            self._process.kill()
            self._process.join()
            self._process = None


def _answer(function: Callable[[Any], Any], there: Connection) -> None:
    while True:
        try:
            question = there.recv()
        except EOFError:
            return
        there.send(function(question))
