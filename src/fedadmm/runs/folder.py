"""A run folder: what it holds, and that one process writes to it at a time. It is read without torch."""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.runs.records import Record

if TYPE_CHECKING:
    from fedadmm.config.experiment import Experiment

TUNING = "tuning"  # the folder for runs of candidates, which no report is about unless it is named
PATIENCE = 1.0  # seconds: the workers of a run that was killed hold its folder until they have ended too


class RunFolder:
    """experiment.toml, rounds.jsonl (a line per round), model.safetensors, and the state that a resume needs.

    Where the engine is "auto", engine.txt says which one ran.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state"  # the folder of the store
        self.model = path / "model.safetensors"

    @contextmanager
    def lock(self, *, remedy: str = "wait for it, or give another --out") -> Iterator[None]:
        """Hold the folder for this process alone; it is made if it is not there."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / "lock").open("a+")
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}; give another --out") from error
        with handle:
            self._flock(handle, fcntl.LOCK_EX, remedy=remedy)
            yield

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Hold the folder for reading: nobody writes to it meanwhile; it may be on a read-only disk."""
        try:
            handle = (self.path / "lock").open()
        except (FileNotFoundError, NotADirectoryError):
            lacks = "lock" if (self.path / "experiment.toml").exists() else "experiment.toml"
            raise not_a_run_folder(self.path, lacks=lacks) from None
        with handle:
            self._flock(handle, fcntl.LOCK_SH, remedy="wait for it, or give another --out")
            yield

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path)

    def read_experiment(self) -> Experiment:
        """Return the experiment in experiment.toml."""
        from fedadmm.config.experiment import Experiment

        try:
            return Experiment.from_toml((self.path / "experiment.toml").read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: experiment.toml cannot be read: {error}; restore it") from error

    def read_records(self) -> list[dict[str, Any]]:
        """Return the lines of rounds.jsonl, none if it is not there."""
        try:
            return read_lines(self.path / "rounds.jsonl")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except ValueError as error:
            raise InputError(f"{self.path}: rounds.jsonl is damaged: {error}; run makes it again") from error

    def write_experiment(self, experiment: Experiment) -> None:
        """Write experiment.toml, if it is not there as it is."""
        self.write("experiment.toml", experiment.to_toml().encode())

    def write_records(self, records: list[Record]) -> None:
        """Write rounds.jsonl anew, where it lags behind the store."""
        self.write("rounds.jsonl", "".join(_line(record) for record in records).encode())

    def append_record(self, record: Record) -> None:
        """Add a round's line to rounds.jsonl."""
        with self._guarded("rounds.jsonl"), (self.path / "rounds.jsonl").open("a") as file:
            file.write(_line(record))

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the folder, whole or not at all, unless it is there as it is."""
        file = self.path / name
        with self._guarded(name):
            if not file.exists() or file.read_bytes() != content:
                write_whole(file, content)

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"cannot write {self.path / name}: {error.strerror}; fix that (is the disk full?) and run the same "
                "command again: no committed round is lost"
            ) from error

    def _flock(self, handle: IO[str], kind: int, *, remedy: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InputError(f"{self.path} is in use by another process; {remedy}") from None
            time.sleep(0.02)


def read_lines(path: Path) -> list[Any]:
    """Return the tables of a file, one a line; a last line that a kill cut in half is left out."""
    *whole, _ = path.read_text().split("\n")
    return [json.loads(line) for line in whole]


def not_a_run_folder(path: Path, *, lacks: str) -> InputError:
    """Return the error for a path that is not a run folder: it lacks a file that every run folder has."""
    reason = f"it has no {lacks}" if path.is_dir() else "it is a file" if path.exists() else "it does not exist"
    return InputError(
        f"{path} is not a run folder: {reason}; `fedadmm run` makes one, and `fedadmm list` names those in runs"
    )


def _line(record: Record) -> str:
    return json.dumps(record.to_json()) + "\n"
