"""A run folder: what it holds, and that one process writes to it at a time."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.engine import Choice
from fedadmm.runs.lines import read_lines
from fedadmm.runs.records import Record
from fedadmm.runs.run_folders import no_run_folder

PATIENCE = 1.0  # seconds: the workers of a run that was killed hold its folder until they have ended too


class StoredModel(NamedTuple):
    """A model as it is in model.safetensors."""

    round: int  # after which it was so
    tensors: dict[str, torch.Tensor]
    parameters: list[str]  # the trainable ones, in the order in which theta holds them

    @classmethod
    def of(cls, module: nn.Module, *, round: int) -> "StoredModel":
        """Return a network as it is stored."""
        tensors = {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
        return cls(round, tensors, [name for name, p in module.named_parameters() if p.requires_grad])

    def to_bytes(self) -> bytes:
        """Return the file's content; the metadata is one key, as safetensors does not keep an order of several."""
        facts = {"round": self.round, "parameters": self.parameters}
        content: bytes = save(self.tensors, metadata={"fedadmm": json.dumps(facts)})
        return content

    @property
    def theta(self) -> torch.Tensor:
        """The trainable parameters as one vector."""
        return torch.cat([self.tensors[name].reshape(-1) for name in self.parameters])


class RunFolder:
    """experiment.toml, rounds.jsonl (a line per round), model.safetensors, and the state that a resume needs.

    Where the engine is "auto", engine.txt says which one ran.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def state(self) -> Path:
        """The folder of the store."""
        return self.path / "state"

    @property
    def model(self) -> Path:
        """The file of the trained model."""
        return self.path / "model.safetensors"

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
            raise no_run_folder(self.path, lacks=lacks) from None
        with handle:
            self._flock(handle, fcntl.LOCK_SH, remedy="wait for it, or give another --out")
            yield

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path)

    def read_experiment(self) -> Experiment:
        """Return the experiment in experiment.toml."""
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

    def read_model(self) -> StoredModel | None:
        """Return what is in model.safetensors, None if there is none."""
        if not self.model.exists():
            return None
        try:
            with safe_open(self.model, framework="pt") as file:
                facts = json.loads((file.metadata() or {})["fedadmm"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise InputError(f"{self.model} is damaged: {error}; run makes it again") from error
        return StoredModel(facts["round"], tensors, facts["parameters"])

    def write_experiment(self, experiment: Experiment) -> None:
        """Write experiment.toml, if it is not there as it is."""
        self._update("experiment.toml", experiment.to_toml().encode())

    def write_engine(self, choice: Choice) -> None:
        """Write engine.txt: what engine = "auto" picked, and why."""
        self._update("engine.txt", f"{choice}\n".encode())

    def write_records(self, records: list[Record]) -> None:
        """Write rounds.jsonl anew, where it lags behind the store."""
        self._update("rounds.jsonl", "".join(_line(record) for record in records).encode())

    def append_record(self, record: Record) -> None:
        """Add a round's line to rounds.jsonl."""
        with self._guarded("rounds.jsonl"), (self.path / "rounds.jsonl").open("a") as file:
            file.write(_line(record))

    def write_model(self, module: nn.Module, *, round: int, name: str = "model.safetensors") -> None:
        """Write a network to a file, whole or not at all, unless it is there already."""
        self._update(name, StoredModel.of(module, round=round).to_bytes())

    def _update(self, name: str, content: bytes) -> None:
        file = self.path / name
        with self._guarded(name):
            if file.exists() and file.read_bytes() == content:
                return
            partial = self.path / f"{name}.partial"
            with partial.open("wb") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
            partial.replace(file)

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"cannot write {self.path / name}: {error.strerror}; mend that (is the disk full?) and run the same "
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


def _line(record: Record) -> str:
    table: dict[str, Any] = record.to_json()
    return json.dumps(table) + "\n"
