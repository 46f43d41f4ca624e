"""The pictures of THEORY.md, from the functions behind `fedadmm reproduce lemmas`, `theorem1` and `floor`."""

from pathlib import Path

import torch
from matplotlib.figure import Figure

from fedadmm.report.figures import save_figure
from fedadmm.studies.theory.analysis import FLOORS, as_analysed, checked, gaps_of, halves
from fedadmm.studies.theory.bounds import Assumptions, theorem_1, theorem_1_from_start
from fedadmm.studies.theory.quadratics import EXACT, Quadratics
from fedadmm.studies.theory.walk import walk

FIGURES = Path(__file__).parent / "figures"


def lemma_1_figure() -> Figure:
    """Draw |y_new - y|^2 over what Lemma 1 allows, at first and at later visits, for exact solves."""
    first, later = [], []
    for seed in range(40):
        path, printed, _ = checked(seed, tolerance=EXACT)
        left, right, _ = printed[0]
        moved = path.active & (right > 1e-12)
        ratio = left / right.clamp(min=1e-300)
        first += ratio[moved & ~path.seen[:-1]].tolist()
        later += ratio[moved & path.seen[:-1]].tolist()
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    bins = torch.logspace(-3, 2.5, 45).tolist()
    for values, label in ((later, "later visits"), (first, "first visits")):
        axes.hist(values, bins=bins, weights=[1 / len(values)] * len(values), alpha=0.7, label=label)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="step of the dual, squared, over what Lemma 1 allows", ylabel="share of the visits")
    axes.legend(frameon=False)
    return figure


def floor_figure() -> Figure:
    """Draw V^t / m for solves of several tolerances."""
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, tolerance in FLOORS.items():
        gaps = gaps_of(tolerance, halves(400)) / 4
        axes.plot(gaps.clamp(min=1e-30), label=f"epsilon = {name}", linewidth=1)
    axes.set(yscale="log", ylim=(1e-14, 20), xlabel="t, rounds done", ylabel="V / m")
    axes.legend(frameon=False, fontsize="small", ncols=2)
    return figure


def start_figure() -> Figure:
    """Draw the mean of V / m on two clients that start at their minimiser, beside the bounds."""
    task = Quadratics(torch.ones(2, 1, 1), torch.tensor([[1.0], [-1.0]]))
    path = walk(as_analysed(4.0), task, theta=torch.zeros(1, dtype=torch.float64), draws=[[0, 1]] * 40)
    lengths = range(1, 41)
    gaps, values = path.certificate.gap / 2, path.certificate.lagrangian.tolist()
    known = Assumptions(rho=4.0, smoothness=1.0, p_min=1.0, num_clients=2, lowest=1.0)
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(lengths, [float(gaps[:n].mean()) for n in lengths], label="mean of V / m from t = 0")
    axes.plot(
        lengths,
        [theorem_1_from_start(known, rounds=n, lagrangian=values[0], gradients=2.0) for n in lengths],
        label="bound from t = 0",
    )
    axes.plot(lengths, [float(gaps[1 : n + 1].mean()) for n in lengths], label="mean of V / m from t = 1", ls="--")
    later = [theorem_1(known, rounds=n, lagrangian=values[1]) for n in lengths]
    axes.plot(lengths, later, label="Theorem 1 from t = 1", ls="--")
    axes.set(yscale="log", ylim=(1e-4, 1e4), xlabel="T, rounds in the mean")
    axes.set_title("Theorem 1 as printed bounds the mean from t = 0 by 0 here", fontsize="medium")
    axes.legend(frameon=False, fontsize="small", ncols=2)
    return figure


def draw() -> None:
    """Draw all of them."""
    for name, figure in (("lemma1", lemma_1_figure()), ("floor", floor_figure()), ("start", start_figure())):
        save_figure(figure, FIGURES / f"theory-{name}.png")


if __name__ == "__main__":
    draw()
