"""What is written down of each round, and the folder of a run: one definition for all who ask.

One process writes to a folder at a time. It is read without torch.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole

if TYPE_CHECKING:
    from fedadmm.config.experiment import Experiment
    from fedadmm.core.engine import RoundTime
    from fedadmm.core.round import RoundSummary

# Keys that most runs have no use for, each with the value at which it is left out of rounds.jsonl.
CLOCK_KEYS = ("simulated_seconds", "mean_staleness", "max_staleness")
NOTHING: dict[str, Any] = {"lost": (), "silent": (), "oversized": (), "joined": (), "client_quantiles": {}}
NOTHING |= dict.fromkeys((*CLOCK_KEYS, "upload_norm")) | {"budget_spent": False}
CLIENT_KEYS = ("clients", "refused", "lost", "silent", "oversized", "joined")  # that list clients


@dataclass(frozen=True)
class Record:
    """One round: a line of rounds.jsonl."""

    round: int  # counted from 1
    accuracy: float | None  # on the test examples
    loss: float | None  # on the test examples
    client_loss: float | None  # weighted mean training loss of the round's clients
    clients: tuple[int, ...]  # whose uploads were applied
    refused: tuple[int, ...]  # whose uploads were not finite, or too large
    steps: int  # local steps of all clients
    gradient_evaluations: int  # of single examples
    bytes_up: int  # that arrived
    bytes_down: int  # that clients were sent, whether they answered or not
    seconds: float  # that the round took here
    lost: tuple[int, ...] = ()  # who was asked, and whose answer did not come in time
    # The user's own, the distance to the optimum, a certificate, what the clients achieved, and what privacy cost:
    # epsilon_spent, and where clipping is adaptive clip and within_clip, the noised share of the uploads within it.
    metrics: dict[str, float | None] = field(default_factory=dict)
    silent: tuple[int, ...] = ()  # who computed, and sent nothing that arrived
    oversized: tuple[int, ...] = ()  # who is among the refused because the upload was longer than max_norm allows
    simulated_seconds: float | None = None  # that the round lasted, where there is a [clock]
    mean_staleness: float | None = None  # updates that its uploads missed, where the server is asynchronous
    max_staleness: int | None = None  # of one upload
    upload_norm: float | None = None  # the median over the uploads that were applied
    # Of loss and each metric: the least value of a client, the nine deciles and the largest, on examples held out
    # (data.client_test). In `metrics`: accuracy_client_mean, accuracy_client_std, accuracy_client_worst_decile, ...
    client_quantiles: dict[str, list[float | None]] = field(default_factory=dict)
    budget_spent: bool = False  # one more round would cost more than privacy.epsilon
    joined: tuple[int, ...] = ()  # whose last batch, of one example, joined the one before for batch normalisation

    def to_json(self) -> dict[str, Any]:
        """Return a plain table; the user's metrics stand beside ours, and some keys only where they say something."""
        table = dict(vars(self))
        metrics: dict[str, Any] = table.pop("metrics")
        for key, nothing in NOTHING.items():
            if table[key] == nothing:
                del table[key]
        return table | metrics

    def value(self, key: str) -> float | None:
        """Return a number of the round by its key in rounds.jsonl, None where the round has none."""
        found: float | None = vars(self)[key] if key in NUMBER_KEYS else self.metrics.get(key)
        return found

    def number(self, key: str) -> float:
        """Return a number of the round by its key, NaN where the round has none."""
        value = self.value(key)
        return math.nan if value is None else value

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Record:
        """Return the record that `to_json` made a table of."""
        table = {**NOTHING, **table}
        own = {key: table[key] for key in cls.__dataclass_fields__ if key != "metrics"}
        own |= {key: tuple(own[key]) for key in CLIENT_KEYS}
        return cls(**own, metrics={key: table[key] for key in table if key not in own})

    @classmethod
    def of(
        cls,
        round: int,
        summary: RoundSummary,
        scores: dict[str, float],
        *,
        seconds: float,
        lost: tuple[int, ...] = (),
        took: RoundTime | None = None,
        client_quantiles: Mapping[str, Sequence[float]] | None = None,
        joined: tuple[int, ...] = (),
    ) -> Record:
        """Return the record of a round from what happened and what the evaluation gave."""
        happened = summary._asdict()
        numbers = _finite(scores | happened.pop("achieved") | happened.pop("released"))
        happened |= _finite({"client_loss": summary.client_loss, "upload_norm": summary.upload_norm})
        accuracy, loss = numbers.pop("accuracy", None), numbers.pop("loss", None)
        times = {} if took is None else {key: getattr(took, key) for key in CLOCK_KEYS}
        quantiles = {name: [_or_none(value) for value in values] for name, values in (client_quantiles or {}).items()}
        own: dict[str, Any] = {"lost": lost, "metrics": numbers, "client_quantiles": quantiles, "joined": joined}
        return cls(round, accuracy, loss, seconds=seconds, **own, **happened, **times)


def _finite(numbers: Mapping[str, float | None]) -> dict[str, float | None]:
    return {key: _or_none(value) for key, value in numbers.items()}


def _or_none(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


# What a certificate adds to a record, as the round finds it; but the dual residual is of the step that it makes.
CERTIFICATE = (
    "lagrangian",
    "V",  # the sum of the next three
    "V_theta",  # |grad_theta L|^2
    "V_w",  # the sum of |grad_{w_i} L_i|^2
    "V_consensus",  # the sum of |w_i - theta|^2
    "primal_residual",  # the root of V_consensus
    "dual_residual",  # sqrt(m) rho |theta_new - theta|
    "largest_error",  # of |grad f_i(w_i) + y_i|^2 over the clients seen: the epsilon of their last solves
    "share_seen",  # of the clients, those visited at least once
)
NO_NUMBERS = {*CLIENT_KEYS, "client_quantiles", "budget_spent"}  # of a line of rounds.jsonl
NUMBER_KEYS = Record.__dataclass_fields__.keys() - NO_NUMBERS - {"metrics"}

CODE_FILE = "code.txt"  # of a run folder: a line for each change of the user's code between its rounds
NOISE_FILE = "noise.txt"  # of a run folder: how much noise there is, where it was found from privacy.epsilon
MIXED_CODE = "rounds of different code"  # what is said of them, by `check`, `show` and reports
MAKES_ONE = "`fedadmm run` makes one, and `fedadmm list` names those in runs"
TUNING = "tuning"  # the folder for runs of candidates, which no report is about unless it is named
PATIENCE = 1.0  # seconds: the workers of a run that was killed hold its folder until they have ended too


class RunFolder:
    """experiment.toml, rounds.jsonl (a line per round), model.safetensors, and the state that a resume needs.

    Where the engine is "auto", engine.txt says which one ran. Where rounds were made with different code of the
    user's, code.txt says what changed, and when. Where privacy.epsilon is given without noise, noise.txt says how much.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state"  # the folder of the store
        self.model = path / "model.safetensors"

    @contextmanager
    def lock(self, *, remedy: str = "wait for it, or give another --out") -> Iterator[None]:
        """Hold the folder for this process alone; it is made if it is not there."""
        while True:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                handle = (self.path / "lock").open("a+")
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:  # told without the name
                    raise
                raise InputError(f"cannot write {self.path}: {error.strerror}; give another --out") from error
            with handle:
                self._flock(handle, fcntl.LOCK_EX, remedy=remedy)
                if self._is_here(handle):  # and was not removed while this process waited
                    yield
                    return

    def _is_here(self, handle: IO[Any]) -> bool:
        try:
            return os.fstat(handle.fileno()).st_ino == (self.path / "lock").stat().st_ino
        except FileNotFoundError:
            return False

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Hold the folder for reading: nobody writes to it meanwhile; it may be on a read-only disk."""
        try:
            handle = (self.path / "lock").open()
        except (FileNotFoundError, NotADirectoryError):
            lacks = "lock" if (self.path / "experiment.toml").exists() else "experiment.toml"
            raise not_a_run_folder(self.path, lacks=lacks) from None
        except OSError as error:
            raise InputError(
                f"cannot read {self.path / 'lock'}: {error.strerror}; make it a file that can be read"
            ) from error
        with handle:
            self._flock(handle, fcntl.LOCK_SH, remedy="wait for it, or give another --out")
            yield

    def has_rounds(self) -> bool:
        """Return whether there is something of a run that is not made again by its command."""
        rounds = self.path / "rounds.jsonl"
        return self.state.exists() or self.model.exists() or (rounds.exists() and rounds.stat().st_size > 0)

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path)

    def read_experiment(self) -> Experiment:
        """Return the experiment in experiment.toml."""
        from fedadmm.config.experiment import Experiment

        try:
            return Experiment.from_toml((self.path / "experiment.toml").read_text(encoding="utf-8"))
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
        with self._guarded("rounds.jsonl"), (self.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
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
    *whole, _ = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in whole]


def not_a_run_folder(path: Path, *, lacks: str) -> InputError:
    """Return the error for a path that is not a run folder: it lacks a file that every run folder has."""
    reason = f"it has no {lacks}" if path.is_dir() else "it is a file" if path.exists() else "it does not exist"
    return InputError(f"{path} is not a run folder: {reason}; {MAKES_ONE}")


def _line(record: Record) -> str:
    return json.dumps(record.to_json()) + "\n"
