"""What a report knows of a run: its folder, and what the paper prints for it."""

import tomllib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedadmm.core.errors import InputError
from fedadmm.core.metrics import METRICS, Metric, metric_named
from fedadmm.runs.folder import not_a_run_folder, read_lines
from fedadmm.runs.records import CLIENT_KEYS, Goal, Record, Status

COUNTED = ("round", "steps", "gradient_evaluations", "bytes_up", "bytes_down", "seconds")  # numbers of every round
SCORES = ("accuracy", "loss", "client_loss")  # of every round too, but they may be None


class Published(NamedTuple):
    """The paper's figure for a run."""

    where: str  # such as "Table III, MNIST non-IID"
    rounds: int | None  # to the target; None: not reached in 100 rounds


@dataclass(frozen=True)
class RunData:
    """A run as its folder tells it."""

    path: Path
    experiment: dict[str, Any]  # as in experiment.toml, which may be of another version
    rounds: list[Record]
    published: Published | None = None

    def first(self, rounds: int) -> "RunData":
        """Return the run as it was after this many rounds."""
        return replace(self, experiment={**self.experiment, "rounds": rounds}, rounds=self.rounds[:rounds])

    @property
    def label(self) -> str:
        """What the run is called in tables and figures."""
        return str(self.experiment.get("label") or self.experiment["algorithm"]["name"])

    @property
    def algorithm(self) -> str:
        """The algorithm's name; of one's own algorithm that of its class, in small letters."""
        return str(self.experiment["algorithm"]["name"]).rpartition(":")[2].lower()

    @property
    def goal(self) -> Goal:
        """How far the run goes, and what it is judged by."""
        stop = bool(self.experiment.get("stop_at_target"))
        return Goal(self.experiment["rounds"], self.metric, self.target, stop)

    @property
    def target(self) -> float | None:
        """The score at which the run has arrived."""
        return self.experiment.get("target")

    @property
    def metric(self) -> Metric:
        """What the run is judged by."""
        return metric_named(self.experiment.get("metric"))

    @property
    def status(self) -> Status:
        """What became of the run."""
        return self.goal.status(self.rounds)

    @cached_property
    def scores(self) -> npt.NDArray[np.float64]:
        """The test accuracy, or the distance to the optimum, after each round; NaN where there is none."""
        return self.steps(self.metric.name)

    @property
    def known_scores(self) -> list[float]:
        """The scores of the rounds that have one."""
        return self.metric.scores(self.rounds)

    def steps(self, key: str) -> npt.NDArray[np.float64]:
        """Return a quantity such as bytes_up, of each round; NaN where there is none."""
        return np.array([record.number(key) for record in self.rounds], dtype=np.float64)

    @property
    def has_clock(self) -> bool:
        """Whether the rounds lasted some simulated time."""
        return bool(self.rounds) and all(record.simulated_seconds is not None for record in self.rounds)

    def total(self, key: str) -> npt.NDArray[np.float64]:
        """Return a quantity such as bytes_up, added up to each round."""
        return np.cumsum(self.steps(key))

    @property
    def arrival(self) -> int | None:
        """The first round that reached the target, None if none did."""
        return self.goal.arrival(self.rounds)


class Section(NamedTuple):
    """Runs of one setting: a heading, a plot and a table."""

    title: str
    runs: list[RunData]
    remark: str = ""


def read_run(path: Path) -> RunData:
    """Read a run folder."""
    try:
        experiment = tomllib.loads((path / "experiment.toml").read_text())
        rounds = read_lines(path / "rounds.jsonl")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise not_a_run_folder(path, lacks=Path(error.filename).name) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; run the experiment again") from error
    if (problem := _problem(experiment, rounds)) is not None:
        raise InputError(f"{path} cannot be read: {problem}; run the experiment again")
    return RunData(path, experiment, [Record.from_json(table) for table in rounds])


def _problem(experiment: dict[str, Any], rounds: list[Any]) -> str | None:
    """Return what a report would stumble over, None if there is nothing."""
    algorithm = experiment.get("algorithm")
    if not isinstance(algorithm, dict) or not isinstance(algorithm.get("name"), str):
        return "experiment.toml names no algorithm"
    if not _is_number(experiment.get("rounds")) or not _is_number(experiment.get("target", 0)):
        return "rounds or target is not a number in experiment.toml"
    if experiment.get("metric") not in (None, *METRICS):
        return f"metric={experiment['metric']!r} in experiment.toml is not one of {', '.join(METRICS)}"
    for number, record in enumerate(rounds, start=1):
        where = f"line {number} of rounds.jsonl"
        if not isinstance(record, dict) or not all(_is_number(record.get(key)) for key in COUNTED):
            return f"{where} lacks one of {', '.join(COUNTED)}"
        if not all(isinstance(record.get(key), list) for key in ("clients", "refused")):
            return f"{where} lacks clients or refused"
        if not record.keys() >= set(SCORES):
            return f"{where} lacks one of {', '.join(SCORES)}"
        for key in record.keys() - CLIENT_KEYS:
            if not (record[key] is None or _is_number(record[key])):
                return f"{where} has {key}={record[key]!r}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
