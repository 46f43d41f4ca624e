"""The curves of a comparison: accuracy against rounds and against bytes."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fedadmm.report.runs import RunData

# Okabe and Ito's palette, which the colour-blind can tell apart, and a line style for each time round.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":")


def accuracy_figure(runs: Sequence[RunData], *, title: str) -> Figure:
    """Return test accuracy against rounds and against uploaded bytes, a curve per run."""
    figure, (by_round, by_bytes) = plt.subplots(1, 2, figsize=(12, 4.8), sharey=True, layout="constrained")
    for number, run in enumerate(runs):
        colour = COLOURS[number % len(COLOURS)]
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        rounds = [record["round"] for record in run.rounds]
        by_round.plot(rounds, run.accuracy, style, color=colour, label=run.label, linewidth=1.6)
        by_bytes.plot(run.total("bytes_up") / 1e6, run.accuracy, style, color=colour, linewidth=1.6)
    targets = {run.target for run in runs} - {None}
    for axes, label in ((by_round, "round"), (by_bytes, "uploaded, MB")):
        for target in targets:
            axes.axhline(target, color="grey", linewidth=0.8, linestyle="--")
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    by_round.set_ylabel("test accuracy")
    figure.suptitle(title)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure and let go of its memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
