"""A study: a table or a figure of the paper as runs, each with what the paper prints for it.

`as_released` gives the same runs as the paper's released code would do them, which is not Algorithm 1: its networks end
in a softmax and have no activation after the convolutions, its local SGD has momentum 0.5 and clips nothing, its
normalisation is its own, and its FedADMM is `fedadmm_released`. It has no baselines: they get the same networks.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedadmm.algorithms import FedADMM, FedADMMReleased
from fedadmm.config.experiment import Experiment
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.errors import InputError
from fedadmm.core.optional import PlainSGDOnly, trait
from fedadmm.runs.tuning import TUNED_FILE, Tuned, Values, read_own_values, with_values

Size = Literal["paper", "small"]
Rows = list[dict[str, str]]  # of a table: each with the same columns
RELEASED_NETWORKS = {"cnn1": "cnn1_released", "cnn2": "cnn2_released"}
RELEASED_MOMENTUM = 0.5


class PaperRun(NamedTuple):
    """One run of a study, for one seed.

    column: the column of the table or the picture of the figure; the experiment's label is the row or the curve.
    tuned_as: the experiment whose tuned values it takes, found by name and label; None: the paper fixes them.
    rounds: to the target, as the paper prints them, "100+" where it was not reached; None: not in the paper.
    accuracy: that the paper prints, in percent.
    """

    column: str
    experiment: Experiment
    tuned_as: Experiment | None = None
    rounds: str | None = None
    accuracy: float | None = None


@dataclass(frozen=True, eq=False)
class Study:
    """A table or a figure of the paper.

    make_runs: its runs; the small size is the same design on a small network, for a machine like a laptop.
    table: instead of runs, a table that is worked out on the spot.
    chosen, aside: rows that are held against the best of all others, and columns that do not judge them; such a
        study has many short runs, of which the round of arrival is kept.
    default, classic: the row that is held, at its best learning rate, against the best of the classic rows and against
        the best of all others, each at its own best; of such a study, too, the rounds of arrival are kept.
    constants: the values that are tried of a method's own constants, with its usual one in the middle.
    """

    name: str
    title: str
    make_runs: Callable[[Size], Iterable[PaperRun]] = lambda size: ()
    table: Callable[[], Rows] | None = None
    small_seeds: int = 1
    paper_seeds: int = 5
    chosen: Sequence[str] = ()
    aside: Sequence[str] = ()
    default: str | None = None
    classic: Sequence[str] = ()
    constants: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    def runs(self, size: Size, *, columns: Iterable[str] | None = None) -> list[PaperRun]:
        """Return the runs in a size, of some columns or of all; those that are the same when small are there once."""
        unique: dict[tuple[str, str | None], PaperRun] = {}
        for run in self.make_runs(size):
            unique.setdefault((run.column, run.experiment.label), run)
        known = list(dict.fromkeys(column for column, _ in unique))
        wanted = known if columns is None else list(columns)
        for column in wanted:
            if column not in known:
                raise InputError(f"{self.name} has no column {column!r}; use {', '.join(known)}")
        return [run for run in unique.values() if run.column in wanted]

    @property
    def keeps_arrivals(self) -> bool:
        """Whether no more than the rounds of arrival are kept of its runs."""
        return bool(self.chosen or self.default)

    def seeds(self, size: Size) -> int:
        """Return over how many seeds the results are averaged: the paper has five."""
        return self.paper_seeds if size == "paper" else self.small_seeds


def usual(grid: Sequence[float]) -> float:
    """Return the value in the middle of a grid."""
    return grid[len(grid) // 2]


@cache
def table_of(file: str) -> dict[str, Any]:
    """Return a TOML file of this folder."""
    return tomllib.loads((resources.files("fedadmm.studies.paper") / file).read_text(encoding="utf-8"))


def published(table: str) -> dict[str, Any]:
    """Return what the paper prints in a table."""
    found: dict[str, Any] = table_of("published.toml")[table]
    return found


def as_released(runs: Iterable[PaperRun]) -> list[PaperRun]:
    """Return runs as the released code would run them, without those for which it has no choice."""
    return [
        run._replace(experiment=_released(run.experiment), tuned_as=run.tuned_as and _released(run.tuned_as))
        for run in runs
        if _has_released_form(run.experiment.algorithm)
    ]


def _has_released_form(algorithm: AnyAlgorithm) -> bool:
    return not isinstance(algorithm, FedADMM) or not (isinstance(algorithm.eta, str) or algorithm.start == "global")


def _released(experiment: Experiment) -> Experiment:
    algorithm, local, network = experiment.algorithm, experiment.local, experiment.model.name
    if isinstance(algorithm, FedADMM):
        assert not isinstance(algorithm.eta, str)
        released = FedADMMReleased(rho=algorithm.rho)  # its eta is 1, and half of that from round 60 on
        algorithm = released if algorithm.eta == 1.0 else replace(released, eta=algorithm.eta)
    if not trait(algorithm, PlainSGDOnly):
        local = local.replace(momentum=RELEASED_MOMENTUM)
    local = local.replace(clip=None)
    name, data = f"{experiment.name}-released", experiment.data.replace(normalisation="released")
    model = experiment.model.replace(name=RELEASED_NETWORKS.get(network, network))
    return experiment.replace(name=name, algorithm=algorithm, model=model, data=data, local=local)


def published_values() -> Tuned:
    """Return what we found, as it ships with the package."""
    return tomllib.loads((resources.files("fedadmm.studies.paper") / TUNED_FILE).read_text(encoding="utf-8"))


def read_tuned(folder: Path) -> Tuned:
    """Return what is published, and over it what was found in a folder."""
    found = published_values()
    for name, methods in read_own_values(folder).items():
        found[name] = found.get(name, {}) | methods
    return found


def tuned_experiment(run: PaperRun, found: Tuned) -> Experiment | None:
    """Return a run's experiment with the values found for it; None if nothing was found yet."""
    if run.tuned_as is None:
        return run.experiment
    values = values_of(run, found)
    return None if values is None else with_values(run.experiment, values)


def values_of(run: PaperRun, found: Tuned) -> Values | None:
    """Return the values found for a run; None if there are none, or it takes none."""
    return None if run.tuned_as is None else found.get(run.tuned_as.name, {}).get(run.tuned_as.label or "")
