"""A run folder: what it holds, and that one process writes to it at a time."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from fedadmm.core.errors import InputError
from fedadmm.experiments.experiment import Experiment
from fedadmm.experiments.records import Record


class RunFolder:
    """experiment.toml, rounds.jsonl (a line per round), model.safetensors, and the state that a resume needs."""

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
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process alone; it is made if it is not there."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / "lock").open("a+")
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}; give another --out") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"{self.path} is in use by another process; wait for it, or give another --out"
                ) from None
            yield

    def write_experiment(self, experiment: Experiment) -> None:
        """Write experiment.toml, if it is not there as it is."""
        self._update("experiment.toml", experiment.to_toml())

    def write_records(self, records: list[Record]) -> None:
        """Write rounds.jsonl anew, where it lags behind the store."""
        self._update("rounds.jsonl", "".join(_line(record) for record in records))

    def append_record(self, record: Record) -> None:
        """Add a round's line to rounds.jsonl."""
        with (self.path / "rounds.jsonl").open("a") as file:
            file.write(_line(record))

    def write_model(self, module: nn.Module, *, round: int) -> None:
        """Write model.safetensors, whole or not at all, unless it is there already."""
        if self._model_round() == str(round):
            return
        tensors = {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
        self._replace("model.safetensors", save(tensors, metadata={"round": str(round)}))

    def _model_round(self) -> str | None:
        try:
            with safe_open(self.model, framework="pt") as file:
                return (file.metadata() or {}).get("round")
        except (OSError, SafetensorError):
            return None

    def _update(self, name: str, text: str) -> None:
        file = self.path / name
        if not file.exists() or file.read_text() != text:
            self._replace(name, text.encode())

    def _replace(self, name: str, content: bytes) -> None:
        partial = self.path / f"{name}.partial"
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path / name)


def _line(record: Record) -> str:
    table: dict[str, Any] = record.to_json()
    return json.dumps(table) + "\n"
