"""A preset: a table or a figure of the paper as experiments, each with what the paper prints for it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError

Size = Literal["paper", "small"]


class Cell(NamedTuple):
    """One run of a preset, for one seed.

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


class WorkedOut(NamedTuple):
    """A table that needs no run."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def no_cells(size: Size) -> Iterable[Cell]:
    """Return no run: the preset is worked out on the spot."""
    return ()


@dataclass(frozen=True)
class Preset:
    """A table or a figure of the paper.

    make_cells: its runs; the small size is the same design on a small network, for a machine like a laptop.
    table: instead of runs, a table that is worked out on the spot.
    chosen, aside: rows that are held against the best of all others, and columns that do not judge them; such a
        preset has many short runs, of which the round of arrival is kept.
    """

    name: str
    title: str
    make_cells: Callable[[Size], Iterable[Cell]] = no_cells
    table: Callable[[], WorkedOut] | None = None
    small_seeds: int = 1
    paper_seeds: int = 5
    chosen: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()

    def cells(self, size: Size) -> list[Cell]:
        """Return the runs in a size; those that fall together in the small one are there once.

        What the paper prints stays beside a small run only if the network is all that differs.
        """
        unique: dict[tuple[str, str | None], Cell] = {}
        for cell, large in zip(self.make_cells(size), self.make_cells("paper"), strict=False):
            if not _differ_in_network_only(cell.experiment, large.experiment):
                cell = cell._replace(rounds=None, accuracy=None)
            unique.setdefault((cell.column, cell.experiment.label), cell)
        return list(unique.values())

    def cells_of(self, columns: Iterable[str] | None, *, size: Size) -> list[Cell]:
        """Return the runs of some columns, or of all."""
        cells = self.cells(size)
        known = list(dict.fromkeys(cell.column for cell in cells))
        wanted = known if columns is None else list(columns)
        for column in wanted:
            if column not in known:
                raise InputError(f"{self.name} has no column {column!r}; use {', '.join(known)}")
        return [cell for cell in cells if cell.column in wanted]

    def seeds(self, size: Size) -> int:
        """Return over how many seeds the results are averaged: the paper has five."""
        return self.paper_seeds if size == "paper" else self.small_seeds


def _differ_in_network_only(small: Experiment, large: Experiment) -> bool:
    return small.replace(name=large.name, model=large.model) == large
