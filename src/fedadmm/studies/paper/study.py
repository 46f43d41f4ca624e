"""A study: a table or a figure of the paper as runs, each with what the paper prints for it."""

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import Plan
from fedadmm.core.errors import InputError

Size = Literal["paper", "small"]
Rows = list[dict[str, str]]  # of a table: each with the same columns


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


@cache
def _read(file: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("fedadmm.studies.paper") / file).read_text())


def published(table: str) -> dict[str, Any]:
    """Return what the paper prints in a table."""
    found: dict[str, Any] = _read("published.toml")[table]
    return found


def experiments_in(file: str) -> dict[str, Experiment]:
    """Return the variants of an experiment that stand in a file of this folder."""
    table = dict(_read(file))
    plan = Plan(table, table.pop("variants"))
    return {variant: plan.experiment(variant, changes={"label": None}) for variant in plan.variants}


@dataclass(frozen=True)
class Study:
    """A table or a figure of the paper.

    make_runs: its runs; the small size is the same design on a small network, for a machine like a laptop.
    table: instead of runs, a table that is worked out on the spot.
    chosen, aside: rows that are held against the best of all others, and columns that do not judge them; such a
        study has many short runs, of which the round of arrival is kept.
    """

    name: str
    title: str
    make_runs: Callable[[Size], Iterable[PaperRun]] = lambda size: ()
    table: Callable[[], Rows] | None = None
    small_seeds: int = 1
    paper_seeds: int = 5
    chosen: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()

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

    def seeds(self, size: Size) -> int:
        """Return over how many seeds the results are averaged: the paper has five."""
        return self.paper_seeds if size == "paper" else self.small_seeds
