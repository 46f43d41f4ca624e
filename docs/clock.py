"""The tables and the picture of CLOCK.md, from results/."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot as plt

from fedadmm.report.figures import save_figure
from fedadmm.report.methods import estimate
from fedadmm.report.runs import RunData
from fedadmm.report.table import markdown
from fedadmm.studies.campaign import Places, jobs_of, paper_report
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import table_of

SECONDS = 1100  # of simulated time, which every run reaches
TARGET = 0.9
COLOURS = dict(zip(table_of("clock.toml")["variants"], ("#5c6470", "#d55e00", "#009e73", "#0072b2"), strict=True))
TITLES = ("Fast FedADMM", "FedADMM", "FedDyn, seen", "FedAvg", "FedProx")
NAMES = dict(zip(table_of("clock.toml")["methods"], TITLES, strict=True))
Runs = dict[tuple[str, str], list[RunData]]  # by mode and method, one for each seed


def runs_in(results: Path) -> Runs:
    """Return the finished runs of the study."""
    jobs = jobs_of(PAPER["clock"], places=Places(results, results), found={}, size="small")
    found: Runs = {}
    for section in paper_report(PAPER["clock"], jobs, results=results):
        for run in section.runs:
            found.setdefault((section.title, run.label), []).append(run)
    return found


def accuracy_at(run: RunData, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the accuracy of the model that the server has at each of some times; NaN before its first."""
    rounds = np.searchsorted(run.total("simulated_seconds"), times, side="right")
    return np.concatenate([[np.nan], run.scores])[rounds]


def tables(runs: Runs) -> str:
    """Return the time to the target, the accuracy in the end, and what became of the clients."""
    texts: dict[str, Callable[[list[RunData]], str]] = {
        f"Simulated seconds to {TARGET:.0%} (mean over seeds ± standard deviation)": _time_text,
        f"Accuracy after {SECONDS:,} simulated seconds": _accuracy_text,
        f"Clients applied within {SECONDS:,} simulated seconds (dropped, refused)": _clients_text,
    }
    parts = []
    for title, text in texts.items():
        rows = [{"method": NAMES[method], **{mode: text(runs[mode, method]) for mode in COLOURS}} for method in NAMES]
        parts.append(f"{title}:\n\n{markdown(rows)}")
    late = [record for run in runs["asynchronous", "fedavg"] for record in run.rounds]
    mean = np.mean([record.number("mean_staleness") for record in late])
    parts.append(
        f"An asynchronous upload missed {mean:.1f} updates of the server in the mean, and "
        f"{max(record.max_staleness or 0 for record in late)} at most.\n"
    )
    return "\n".join(parts)


def draw(runs: Runs, path: Path) -> None:
    """Draw accuracy against simulated time: a panel for each method, a curve for each way of treating the slow."""
    times = np.linspace(0, SECONDS, 500)
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure, panels = plt.subplots(2, 3, figsize=(12, 6.4), sharex=True, sharey=True, layout="constrained")
        *shown, unused = panels.flat
        for panel, method in zip(shown, NAMES, strict=True):
            for mode in COLOURS:
                curves = np.array([accuracy_at(run, times) for run in runs[mode, method]])
                panel.plot(times, curves.mean(axis=0), color=COLOURS[mode], label=mode, linewidth=1.4)
            panel.axhline(TARGET, color="grey", linewidth=0.8, linestyle=":")
            panel.set_title(NAMES[method])
            panel.grid(alpha=0.3)
        panels[0, 0].set_xlim(0, SECONDS)
        panels[0, 0].set_ylim(0, 1)
        unused.set_axis_off()
        panels[0, 2].tick_params(labelbottom=True)
        for panel in (*panels[1], panels[0, 2]):
            panel.set_xlabel("simulated seconds")
        for panel in panels[:, 0]:
            panel.set_ylabel("test accuracy")
        handles, names = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(COLOURS), frameon=False)
        save_figure(figure, path)


def _time_text(runs: Sequence[RunData]) -> str:
    times = [run.total("simulated_seconds")[run.arrival - 1] for run in runs if run.arrival is not None]
    found = estimate(times)
    if found is None:
        return "not reached"
    spread = "" if found.spread is None else f" ± {found.spread:.0f}"
    missed = "" if len(times) == len(runs) else f" ({len(times)}/{len(runs)})"
    return f"{found.mean:.0f}{spread}{missed}"


def _accuracy_text(runs: Sequence[RunData]) -> str:
    found = estimate([float(accuracy_at(run, np.array([SECONDS]))[0]) for run in runs])
    assert found is not None
    return f"{found.mean:.3f}" + ("" if found.spread is None else f" ± {found.spread:.3f}")


def _clients_text(runs: Sequence[RunData]) -> str:
    counts = np.zeros(3)
    for run in runs:
        for record in run.rounds[: int(np.searchsorted(run.total("simulated_seconds"), SECONDS))]:
            counts += [len(record.clients), len(record.lost), len(record.refused)]
    applied, lost, refused = counts / len(runs)
    return f"{applied:.0f}" + (f" ({lost:.0f}, {refused:.0f})" if lost or refused else "")
