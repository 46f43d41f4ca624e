"""What a report knows of a run, and which runs it is about: folders are searched, and what does not belong is named."""

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedadmm.core.errors import InputError
from fedadmm.core.files import UNHASHED, dotted, used_keys
from fedadmm.core.metrics import ACCURACY, Metric, metric_named
from fedadmm.runs.goal import Goal, Status
from fedadmm.runs.records import (
    CLIENT_KEYS,
    CODE_FILE,
    MAKES_ONE,
    NO_NUMBERS,
    TUNING,
    Record,
    not_a_run_folder,
    read_lines,
)

COUNTED = ("round", "steps", "gradient_evaluations", "bytes_up", "bytes_down", "seconds")  # numbers of every round
SCORES = ("accuracy", "loss", "client_loss")  # of every round too, but they may be None
NO_PART_OF_A_METHOD = {*UNHASHED, "seed", "state.store", "state.durability"}


class Published(NamedTuple):
    """The paper's figures for a run."""

    where: str  # such as "Table III, MNIST non-IID"
    rounds: int | None  # to the target; None: not reached in 100 rounds
    final: float | None = None  # the accuracy after 100 rounds, where it is printed


@dataclass(frozen=True)
class RunData:
    """A run as its folder tells it."""

    path: Path
    experiment: dict[str, Any]  # as in experiment.toml, which may be of another version
    rounds: list[Record]
    published: Published | None = None
    changes_of_code: tuple[str, ...] = ()  # between its rounds, a line each

    def until(self, goal: Goal) -> "RunData":
        """Return the run as it was when it reached this goal: its folder may have rounds beyond."""
        first = self.first(goal.rounds)
        if not (goal.stop_at_target or goal.patience):
            return first
        ends = (number for number in range(1, len(first.rounds) + 1) if goal.has_ended(first.rounds[:number]))
        return replace(first, rounds=first.rounds[: next(ends, None)])

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

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that make the method, by their dotted keys."""
        table = {key: value for key, value in self.experiment.items() if key not in NO_PART_OF_A_METHOD}
        return {key: value for key, value in dotted(table).items() if key not in NO_PART_OF_A_METHOD}

    @cached_property
    def identity(self) -> str:
        """What runs of the same method share, whatever their seeds."""
        return json.dumps([self.label, self.settings], sort_keys=True, default=str)

    @property
    def goal(self) -> Goal:
        """How far the run goes, and what it is judged by."""
        return Goal.from_table(self.experiment)

    @property
    def target(self) -> float | None:
        """The score at which the run has arrived."""
        return self.experiment.get("target")

    @cached_property
    def metric(self) -> Metric:
        """What the run is judged by."""
        return self.goal.judge(self.rounds)

    @cached_property
    def status(self) -> Status:
        """What became of the run."""
        return self.goal.status(self.rounds)

    @cached_property
    def scores(self) -> npt.NDArray[np.float64]:
        """What the run is judged by, after each round; NaN where there is none."""
        return self.steps(self.metric.name)

    @cached_property
    def client_quantiles(self) -> dict[str, list[float | None]]:
        """The last deciles over clients of each metric, none where clients have no test examples."""
        last = next((record.client_quantiles for record in reversed(self.rounds) if record.client_quantiles), {})
        return {name: deciles for name, deciles in last.items() if None not in deciles}

    @property
    def known_scores(self) -> list[float]:
        """The scores of the rounds that have one."""
        return self.metric.scores(self.rounds)

    @cached_property
    def score_names(self) -> list[str]:
        """The names of all scores that some round has: what the run is judged by first."""
        names = dict.fromkeys([self.metric.name, *SCORES, *(name for record in self.rounds for name in record.metrics)])
        return [name for name in names if any(record.value(name) is not None for record in self.rounds)]

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

    @cached_property
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
        experiment = tomllib.loads((path / "experiment.toml").read_text(encoding="utf-8"))
        rounds, changes = read_lines(path / "rounds.jsonl"), changes_of_code(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise not_a_run_folder(path, lacks=Path(error.filename).name) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; run the experiment again") from error
    if (problem := _problem(experiment, rounds)) is not None:
        raise InputError(f"{path} cannot be read: {problem}; run the experiment again")
    return RunData(path, experiment, [Record.from_json(table) for table in rounds], changes_of_code=changes)


def changes_of_code(path: Path) -> tuple[str, ...]:
    """Return what is said of the user's code that changed between the rounds of a run folder."""
    file = path / CODE_FILE
    return tuple(file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()


def _problem(experiment: dict[str, Any], rounds: list[Any]) -> str | None:
    """Return what a report would stumble over, None if there is nothing."""
    algorithm = experiment.get("algorithm")
    if not isinstance(algorithm, dict) or not isinstance(algorithm.get("name"), str):
        return "experiment.toml names no algorithm"
    if not _is_number(experiment.get("rounds")) or not _is_number(experiment.get("target", 0)):
        return "rounds or target is not a number in experiment.toml"
    if not isinstance(experiment.get("local", {}), dict):
        return "local is not a table in experiment.toml"
    try:
        metric_named(str(experiment.get("metric", "accuracy")), experiment.get("direction"))
    except InputError as error:
        return f"{error} in experiment.toml"
    for number, record in enumerate(rounds, start=1):
        where = f"line {number} of rounds.jsonl"
        if not isinstance(record, dict) or not all(_is_number(record.get(key)) for key in COUNTED):
            return f"{where} lacks one of {', '.join(COUNTED)}"
        if not all(isinstance(record.get(key), list) for key in ("clients", "refused")):
            return f"{where} lacks clients or refused"
        if odd := [key for key in CLIENT_KEYS if not isinstance(record.get(key, []), list)]:
            return f"{where} has {odd[0]}={record[odd[0]]!r}"
        quantiles = record.get("client_quantiles", {})
        if not isinstance(quantiles, dict) or not all(isinstance(deciles, list) for deciles in quantiles.values()):
            return f"{where} has client_quantiles={quantiles!r}"
        if not record.keys() >= set(SCORES):
            return f"{where} lacks one of {', '.join(SCORES)}"
        for key in record.keys() - NO_NUMBERS:
            if not (record[key] is None or _is_number(record[key])):
                return f"{where} has {key}={record[key]!r}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Gathered(NamedTuple):
    """The runs that were found, and a sentence for each folder that was left out."""

    runs: list[RunData]
    left_out: list[str]


def gather_runs(paths: Sequence[Path]) -> Gathered:
    """Return the runs in run folders and in folders of them; half-written, empty and repeated ones are left out."""
    for path in paths:
        if not path.exists():
            told = "give run folders, as `fedadmm run` makes them, or a folder of such"
            raise InputError(f"there is no folder {path}; {told}")
    runs, left_out = [], []
    for folder in dict.fromkeys(folder for path in paths for folder in run_folders(path)):
        run = _run_or_reason(folder)
        if isinstance(run, str):
            left_out.append(run)
        elif run.rounds:
            runs.append(run)
        else:
            left_out.append(f"{folder} has no finished round")
    kept, repeats = without_repeats(runs)
    left_out += [f"{run.path} repeats a run of the same method and seed" for run in repeats]
    if not kept:
        where = ", ".join(map(str, paths))
        named = tuple(f"{path} is not" for path in paths)  # a run folder, which need not be said of an empty one
        others = [sentence for sentence in left_out if not sentence.startswith(named)]
        raise InputError("; ".join([f"there is no run in {where}", *others, "make one with fedadmm run"]))
    return Gathered(kept, left_out)


def list_runs(folder: Path) -> Gathered:
    """Return the runs in a folder, in the order of their names; only those that cannot be read are left out."""
    files = sorted(folder.glob("*/experiment.toml"))
    found = [_run_or_reason(file.parent) for file in files if (file.parent / "rounds.jsonl").exists()]
    return Gathered([run for run in found if isinstance(run, RunData)], [r for r in found if isinstance(r, str)])


def without_repeats(runs: Sequence[RunData]) -> tuple[list[RunData], list[RunData]]:
    """Return the runs, of the same method and seed only the longest, and the repeats that were left out."""
    longest: dict[tuple[str, Any], RunData] = {}
    for run in runs:
        key = (run.identity, run.experiment.get("seed"))
        if key not in longest or len(run.rounds) > len(longest[key].rounds):
            longest[key] = run
    kept = list(longest.values())
    return kept, [run for run in runs if not any(run is other for other in kept)]


def by_setting(runs: Sequence[RunData]) -> list[list[RunData]]:
    """Return the runs that can be compared with each other (same data, metric and target), the most numerous first."""
    settings = [json.dumps(_setting(run), sort_keys=True, default=str) for run in runs]
    return [
        [run for run, own in zip(runs, settings, strict=True) if own == setting]
        for setting, _ in Counter(settings).most_common()
    ]


def differences(run: RunData, other: RunData) -> str:
    """Return in what the setting of a run is not that of another, such as data.name=mnist (not digits)."""
    mine, its = _setting(run), _setting(other)
    keys = [key for key in sorted(mine.keys() | its.keys()) if mine.get(key) != its.get(key)]
    return ", ".join(f"{key}={mine.get(key, 'none')} (not {its.get(key, 'none')})" for key in keys)


def setting_title(run: RunData) -> str:
    """Return the data and the partition of a run, as a heading."""
    data = run.experiment.get("data", {})
    clients = data.get("num_clients")
    parts = [data.get("name"), data.get("partition"), None if clients is None else f"{clients} clients"]
    return ", ".join(str(part) for part in parts if part is not None) or "runs"


def sections_of(groups: Sequence[list[RunData]]) -> list[Section]:
    """Return the sections of groups of runs; those that would be called alike say in what they differ."""
    sections = [section_of(group) for group in groups]
    names = Counter(section.title for section in sections)
    return [
        section if names[section.title] == 1 else section._replace(title=f"{section.title}{_apart(section, sections)}")
        for section in sections
    ]


def _apart(section: Section, sections: Sequence[Section]) -> str:
    own = _setting(section.runs[0])
    alike = [_setting(other.runs[0]) for other in sections if other.title == section.title]
    keys = [key for key in sorted(own) if any(other.get(key) != own[key] for other in alike)]
    return "".join(f", {key.rpartition('.')[2]} {own[key]}" for key in keys)


def section_of(runs: list[RunData]) -> Section:
    """Return the section of a report with these runs of one setting, under its name, metric and target."""
    metric, target = runs[0].metric, runs[0].target
    judged = "" if metric is ACCURACY else f", {metric.name}"
    return Section(setting_title(runs[0]) + judged + ("" if target is None else f", target {target:g}"), runs)


def _run_or_reason(folder: Path) -> RunData | str:
    try:
        return read_run(folder)
    except InputError as error:
        return str(error).removesuffix(f"; {MAKES_ONE}")  # which is said once, if at all


def _setting(run: RunData) -> dict[str, Any]:
    """Return the keys that two runs must share to be compared."""
    data = used_keys(run.experiment.get("data", {}))
    return dotted({"data": data, "target": run.target, "metric": run.metric.name})


def run_folders(path: Path) -> Iterator[Path]:
    """Yield the run folders at or below a path: also half-written and empty ones, which are to be named."""
    if not path.is_dir():
        return
    children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    if not children or any(child.name in ("experiment.toml", "rounds.jsonl", "lock") for child in children):
        yield path
        return
    for child in children:
        if child.name != TUNING:
            yield from run_folders(child)
