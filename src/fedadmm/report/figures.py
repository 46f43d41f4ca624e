"""Figures: the curves of a section against rounds and what they cost."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from fedadmm.core.metrics import EPSILON
from fedadmm.core.picture import Picture
from fedadmm.report.methods import ROUNDS, Axis, MethodRuns, axes_of, much_longer


def accuracy_figure(
    methods: Sequence[MethodRuns], *, title: str, axes: Sequence[Axis] | None = None, width: float = 7.2
) -> Picture:
    """Return the score against each of some quantities, or all, a curve per method, a band for its spread.

    The width in inches is by default that of a page of two columns, as the paper has.
    """
    axes = axes_of(methods) if axes is None else axes
    with _text_for(width):
        panel_height = max(1.9, 0.75 * width / len(axes))
        figure, drawn = _panels(1, len(axes), width, panel_height, legend=methods)
        figure.suptitle(_plain(title))
        for panel, axis in zip(drawn, axes, strict=True):
            _draw(panel, methods, axis)
        _label_scores(drawn[0], methods)
        return figure


def epsilon_figure(methods: Sequence[MethodRuns], *, title: str, width: float = 7.2) -> Picture:
    """Return what the rounds of private runs have cost, against rounds, and the score against that cost."""
    private = [method for method in methods if method.epsilon is not None]
    with _text_for(width):
        figure, (spent, reached) = _panels(1, 2, width, 0.4 * width, legend=private, share_scores=False)
        figure.suptitle(_plain(title))
        for method in private:
            curve = method.curve_of(EPSILON)
            spent.plot(curve.rounds, curve.mean, **_line(method))
            cost = np.interp(method.curve.rounds, curve.rounds, curve.mean)
            reached.plot(cost, method.curve.mean, **_line(method))
        spent.set(xlabel=ROUNDS.title, ylabel=EPSILON.title)
        reached.set_xlabel(EPSILON.title)
        _label_scores(reached, private)
        for panel in (spent, reached):
            panel.grid(alpha=0.3)
        return figure


def columns_figure(columns: Mapping[str, Sequence[MethodRuns]], *, width: float = 7.2) -> Picture:
    """Return the score against rounds in several settings, a panel for each under its name, in one legend."""
    across = len(columns) if len(columns) <= 4 else 3
    rows = -(-len(columns) // across)
    by_name = {method.name: method for methods in columns.values() for method in methods}
    with _text_for(width):
        panel_height = min(max(1.7, 0.8 * width / across), 0.35 * width)
        figure, drawn = _panels(rows, across, width, panel_height, legend=list(by_name.values()))
        for panel in drawn[len(columns) :]:
            panel.remove()
        for place, (panel, (name, methods)) in enumerate(zip(drawn, columns.items(), strict=False)):
            _draw(panel, methods, ROUNDS)
            panel.set_title(_plain(name))
            if place % across == 0:
                _label_scores(panel, methods)
        return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure, in the format of the path's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200 if figure.get_figwidth() < 10 else 130)


@contextmanager
def saved_beside(figure: Figure, path: Path) -> Iterator[None]:
    """Write a figure in a process of its own, beside the block; after it, and here, where that cannot be done."""
    child = os.fork() if hasattr(os, "fork") and threading.active_count() == 1 else None
    if child == 0:
        try:
            save_figure(figure, path)
        except BaseException:
            os._exit(1)
        os._exit(0)
    try:
        yield
    finally:
        failed = child is None or os.waitpid(child, 0)[1] != 0
    if failed:
        save_figure(figure, path)  # an error is raised here


def _text_for(width: float) -> AbstractContextManager[None]:
    size = _points(width)
    return matplotlib.rc_context({"font.size": size, "axes.titlesize": size, "pdf.fonttype": 42})


def _points(width: float) -> int:
    return 8 if width < 10 else 10


def _panels(
    rows: int,
    across: int,
    width: float,
    panel_height: float,
    *,
    legend: Sequence[MethodRuns],
    share_scores: bool = True,
) -> tuple[Picture, list[Axes]]:
    """Return a figure with empty panels, row by row, and the legend below them."""
    size = _points(width)
    line = size / 72  # in inches, as all below
    longest = max(len(method.name) for method in legend)
    columns = max(1, int(width / (0.62 * line * longest + 5 * line)))
    below = 1.5 * line * -(-len(legend) // columns)
    height = rows * panel_height + below + 0.4
    figure = Picture(figsize=(width, height))
    drawn = figure.subplots(rows, across, sharey=share_scores, squeeze=False)
    # Margins from the size of the text: to measure it would take as long as to draw all of it.
    left, right, top, bottom = 5.5 * line, 1.5 * line, 3.5 * line, 5 * line + below
    aside, between = (
        (2 if share_scores else 7) * line,
        6.5 * line,
    )  # the gaps between the panels of a row, and between rows
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=aside / ((width - left - right - aside * (across - 1)) / across),
        hspace=between / ((height - top - bottom - between * (rows - 1)) / rows),
    )
    handles = [Line2D([], [], **_line(method)) for method in legend]
    names = [_plain(method.name) for method in legend]
    figure.legend(handles, names, loc="lower center", ncols=columns, frameon=False)
    return figure, list(drawn.flat)


def _label_scores(panel: Axes, methods: Sequence[MethodRuns]) -> None:
    panel.set_ylabel(methods[0].metric.title)
    if methods[0].metric.log_scale:
        panel.set_yscale("log")


def _draw(panel: Axes, methods: Sequence[MethodRuns], axis: Axis) -> None:
    for method in methods:
        x, curve = axis.values(method), method.curve
        panel.plot(x, curve.mean, **_line(method))
        if (band := curve.band(method.metric)) is not None:
            panel.fill_between(x, *band, color=method.style.colour, alpha=0.15, linewidth=0)
    target = methods[0].runs[0].target
    if target is not None:
        panel.axhline(target, color="grey", linewidth=0.8, linestyle=":")
    panel.set_xlabel(axis.title)
    panel.set_xlim(left=0)
    if (longest := much_longer(methods)) is not None:
        end = max(axis.values(method).max(initial=0) for method in methods if method is not longest)
        if axis.values(longest).max(initial=0) > 1.5 * end:
            panel.set(xlim=(0, 1.05 * end), xlabel=_plain(f"{axis.title} ({longest.name} goes on)"))
    if axis is not ROUNDS:
        panel.xaxis.set_major_formatter(EngFormatter(axis.unit, sep="" if not axis.unit else " "))
        panel.locator_params(axis="x", nbins=3)
    panel.grid(alpha=0.3)


def _line(method: MethodRuns) -> dict[str, Any]:
    width, dash = 1.4, method.style.dash
    dashes = (0, [length / width for length in dash]) if dash else "-"
    return {"color": method.style.colour, "linestyle": dashes, "linewidth": width}


def _plain(text: str) -> str:
    """Return text that matplotlib shows as it is: no mathematics, and no name that its legend passes over."""
    return " " + text.replace("$", r"\$") if text.startswith("_") else text.replace("$", r"\$")
