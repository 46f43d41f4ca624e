"""The curves of a section as a figure for paper and page: the score against rounds and against what they cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from fedadmm.report.axes import ROUNDS, Axis, axes_of
from fedadmm.report.methods import Method


def accuracy_figure(
    methods: Sequence[Method], *, title: str, axes: Sequence[Axis] | None = None, width: float = 7.2
) -> Figure:
    """Return the score against each of some quantities, or all, a curve per method, a band for its spread.

    The width in inches is by default that of a page of two columns, as the paper has.
    """
    axes = axes_of(methods) if axes is None else axes
    size = 8 if width < 10 else 10  # points
    with plt.rc_context({"font.size": size, "axes.titlesize": size, "pdf.fonttype": 42}):
        panels = width / len(axes)
        longest = max(len(method.name) for method in methods)
        columns = max(1, int(72 * width / (0.62 * size * longest + 5 * size)))
        rows_of_legend = -(-len(methods) // columns)
        height = max(1.9, 0.75 * panels) + 0.021 * size * rows_of_legend + 0.3
        figure, drawn = plt.subplots(
            1, len(axes), figsize=(width, height), sharey=True, squeeze=False, layout="constrained"
        )
        for panel, axis in zip(drawn[0], axes, strict=True):
            _draw(panel, methods, axis)
        drawn[0][0].set_ylabel(methods[0].metric.title)
        if methods[0].metric.low:
            drawn[0][0].set_yscale("log")
        figure.suptitle(_plain(title))
        handles = [Line2D([], [], **_line(method)) for method in methods]
        names = [_plain(method.name) for method in methods]
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
        return figure


def save_figure(figure: Figure, *paths: Path) -> None:
    """Write a figure, in the format of each path's ending, and let go of its memory."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=200 if figure.get_figwidth() < 10 else 130)
    plt.close(figure)


def _draw(panel: Axes, methods: Sequence[Method], axis: Axis) -> None:
    for method in methods:
        x, curve = axis.values(method), method.curve
        panel.plot(x, curve.mean, **_line(method))
        if (band := curve.band(method.metric)) is not None:
            panel.fill_between(x, *band, color=method.style.colour, alpha=0.15, linewidth=0)
    target = methods[0].runs[0].target
    if target is not None:
        panel.axhline(target, color="grey", linewidth=0.8, linestyle=":")
    panel.set_xlabel(axis.title)
    if axis is not ROUNDS:
        panel.xaxis.set_major_formatter(EngFormatter(axis.unit, sep="" if not axis.unit else " "))
        panel.locator_params(axis="x", nbins=4)
    panel.set_xlim(left=0)
    panel.grid(alpha=0.3)


def _line(method: Method) -> dict[str, Any]:
    dash = method.style.dash
    return {
        "color": method.style.colour,
        "linestyle": (0, [length / 1.4 for length in dash]) if dash else "-",
        "linewidth": 1.4,
    }


def _plain(text: str) -> str:
    """Return text that matplotlib shows as it is: no mathematics, and no name that its legend passes over."""
    return " " + text.replace("$", r"\$") if text.startswith("_") else text.replace("$", r"\$")
