"""What a report knows of a run: its folder, nothing else."""

import tomllib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedadmm.core.errors import InputError
from fedadmm.runs.lines import read_lines
from fedadmm.runs.metrics import ACCURACY, DISTANCE, Metric
from fedadmm.runs.run_folders import no_run_folder

COUNTED = ("round", "bytes_up", "gradient_evaluations", "seconds")  # what a report adds up


@dataclass(frozen=True)
class RunData:
    """A run as its folder tells it."""

    path: Path
    experiment: dict[str, Any]
    rounds: list[dict[str, Any]]

    def first(self, rounds: int) -> "RunData":
        """Return the run as it was after so many rounds."""
        return replace(self, experiment={**self.experiment, "rounds": rounds}, rounds=self.rounds[:rounds])

    @property
    def label(self) -> str:
        """What the run is called in tables and figures."""
        return str(self.experiment.get("label") or self.experiment["algorithm"]["name"])

    @property
    def target(self) -> float | None:
        """The score at which the run has arrived."""
        return self.experiment.get("target")

    @property
    def metric(self) -> Metric:
        """What the run is judged by."""
        return DISTANCE if self.experiment.get("metric") == "distance" else ACCURACY

    @property
    def status(self) -> str:
        """\"finished\", \"unfinished\", \"diverged\" (every client of the last round was refused) or \"collapsed\"
        (ten rounds or more, and it ended worse than after its first).
        """
        if self.rounds and self.rounds[-1]["refused"] and not self.rounds[-1]["clients"]:
            return "diverged"
        arrived = self.experiment.get("stop_at_target") and self.arrival is not None
        if not arrived and len(self.rounds) < self.experiment["rounds"]:
            return "unfinished"
        known = self.known_scores
        collapsed = len(known) >= 10 and not self.metric.reached(known[-1], target=known[0])
        return "collapsed" if collapsed else "finished"

    @cached_property
    def scores(self) -> npt.NDArray[np.float64]:
        """The test accuracy, or the distance to the optimum, after each round; NaN where there is none."""
        found = [r.get(self.metric.key) for r in self.rounds]
        return np.array([np.nan if score is None else score for score in found], dtype=np.float64)

    @property
    def known_scores(self) -> npt.NDArray[np.float64]:
        """The scores of the rounds that have one."""
        return self.scores[~np.isnan(self.scores)]

    def steps(self, key: str) -> npt.NDArray[np.float64]:
        """Return a quantity such as bytes_up, of each round."""
        return np.array([r[key] for r in self.rounds], dtype=np.float64)

    @property
    def has_clock(self) -> bool:
        """Whether the rounds lasted some simulated time."""
        return bool(self.rounds) and all("simulated_seconds" in record for record in self.rounds)

    def total(self, key: str) -> npt.NDArray[np.float64]:
        """Return a quantity such as bytes_up, added up to each round."""
        return np.cumsum(self.steps(key))

    @property
    def arrival(self) -> int | None:
        """The first round that reached the target, None if none did."""
        if self.target is None or not self.rounds:
            return None
        reached = np.flatnonzero(self.metric.reached(self.scores, self.target))
        return int(self.rounds[reached[0]]["round"]) if len(reached) else None


def read_run(path: Path) -> RunData:
    """Read a run folder."""
    try:
        experiment = tomllib.loads((path / "experiment.toml").read_text())
        rounds = read_lines(path / "rounds.jsonl")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise no_run_folder(path, lacks=Path(error.filename).name) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; run the experiment again") from error
    if (problem := _problem(experiment, rounds)) is not None:
        raise InputError(f"{path} cannot be read: {problem}; run the experiment again")
    return RunData(path, experiment, rounds)


def _problem(experiment: dict[str, Any], rounds: list[Any]) -> str | None:
    """Return what a report would stumble over, None if there is nothing."""
    algorithm = experiment.get("algorithm")
    if not isinstance(algorithm, dict) or not isinstance(algorithm.get("name"), str):
        return "experiment.toml names no algorithm"
    if not _is_number(experiment.get("rounds")) or not _is_number(experiment.get("target", 0)):
        return "rounds or target is no number in experiment.toml"
    for number, record in enumerate(rounds, start=1):
        if not isinstance(record, dict) or not all(_is_number(record.get(key)) for key in COUNTED):
            return f"line {number} of rounds.jsonl lacks one of {', '.join(COUNTED)}"
        for key in (ACCURACY.key, DISTANCE.key):
            if not (record.get(key) is None or _is_number(record[key])):
                return f"line {number} of rounds.jsonl has {key}={record[key]!r}"
        if not _is_number(record.get("simulated_seconds", 0)):
            return f"line {number} of rounds.jsonl has simulated_seconds={record['simulated_seconds']!r}"
        if not all(isinstance(record.get(key), list) for key in ("clients", "refused")):
            return f"line {number} of rounds.jsonl lacks clients or refused"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
