"""The tables and the picture of UPLOADS.md, from results/."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot as plt
from privacy_table import mean_text

from fedadmm.report.figures import save_figure
from fedadmm.report.methods import estimate
from fedadmm.report.runs import RunData
from fedadmm.report.table import markdown
from fedadmm.studies.campaign import Places, jobs_of, paper_report
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import table_of

TARGET = 0.9
LAST = 5  # rounds over which an accuracy under attack is averaged
NAMES = {"fast_fedadmm": "fast_fedadmm (the default)", "fedavg": "FedAvg", "scaffold": "SCAFFOLD"}
COLOURS = ("#222222", "#0072b2", "#56b4e9", "#009e73", "#8fce9b", "#e69f00", "#d55e00", "#8c2d04", "#cc79a7", "#7b3294")
Runs = dict[tuple[str, str], list[RunData]]  # by column and method, one for each seed


def runs_of(study: str, results: Path) -> Runs:
    """Return the finished runs of a study."""
    jobs = jobs_of(PAPER[study], places=Places(results, results), found={}, size="small")
    found: Runs = {}
    for section in paper_report(PAPER[study], jobs, results=results):
        for run in section.runs:
            found.setdefault((section.title, run.label), []).append(run)
    return found


def megabytes(run: RunData) -> npt.NDArray[np.float64]:
    """Return the megabytes that the clients of a run have uploaded after each round."""
    return run.total("bytes_up") / 1e6


def compression_tables(results: Path) -> str:
    """Return the accuracy in the end, and the megabytes in all and up to the target."""
    runs, table = runs_of("compression", results), table_of("compression.toml")
    rounds = table["rounds"]
    texts: dict[str, Callable[[list[RunData]], str]] = {
        f"Accuracy after {rounds} rounds (mean over seeds ± standard deviation)": _accuracy_text,
        f"Megabytes uploaded by all clients in {rounds} rounds, and in brackets until {TARGET:.0%}": _megabytes_text,
    }
    return "\n".join(f"{title}:\n\n{markdown(_rows(runs, table, text))}" for title, text in texts.items())


def _rows(runs: Runs, table: dict[str, Any], text: Callable[[list[RunData]], str]) -> list[dict[str, str]]:
    return [
        {"uploads": column, **{NAMES[method]: text(runs.get((column, method), [])) for method in table["methods"]}}
        for column in table["variants"]
    ]


def attack_tables(results: Path) -> str:
    """Return the accuracy under each attack, a table for each method."""
    runs, table = runs_of("attacks", results), table_of("attacks.toml")
    parts = []
    for method in table["methods"]:
        rows = [
            {
                "mean": rule,
                **{attack: _last_text(runs.get((f"{attack} / {rule}", method), [])) for attack in table["variants"]},
            }
            for rule in table["crossed"]
        ]
        parts.append(f"{NAMES[method]}:\n\n{markdown(rows)}")
    return "\n".join(parts)


def draw(results: Path, path: Path) -> None:
    """Draw accuracy against megabytes: a panel for each method, a curve for each way of compressing."""
    runs, table = runs_of("compression", results), table_of("compression.toml")
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure, panels = plt.subplots(1, 3, figsize=(11, 4.2), sharex=True, sharey=True, layout="constrained")
        for panel, method in zip(panels, table["methods"], strict=True):
            for colour, column in zip(COLOURS, table["variants"], strict=True):
                found = runs.get((column, method), [])
                if found:
                    scores = np.mean([run.scores for run in found], axis=0)
                    style = "--" if "feedback" in column else "-"
                    panel.plot(megabytes(found[0]), scores, style, color=colour, label=column, linewidth=1.3)
            panel.axhline(TARGET, color="grey", linewidth=0.8, linestyle=":")
            panel.set_title(NAMES[method])
            panel.set_xlabel("megabytes uploaded")
            panel.grid(alpha=0.3)
        panels[0].set_xscale("log")
        panels[0].set_ylim(0, 1)
        panels[0].set_ylabel("test accuracy")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False)
        save_figure(figure, path)


def _accuracy_text(runs: Sequence[RunData]) -> str:
    found = estimate([float(run.scores[-1]) for run in runs])
    return "no run yet" if found is None else mean_text(found, digits=3)


def _megabytes_text(runs: Sequence[RunData]) -> str:
    if not runs:
        return "no run yet"
    reached = [float(megabytes(run)[run.arrival - 1]) for run in runs if run.arrival is not None]
    until = f"{np.mean(reached):.1f}" if len(reached) == len(runs) else f"{len(reached)} of {len(runs)} runs get there"
    return f"{np.mean([megabytes(run)[-1] for run in runs]):.1f} ({until})"


def _last_text(runs: Sequence[RunData]) -> str:
    found = estimate([float(np.mean(run.scores[-LAST:])) for run in runs])
    return "no run yet" if found is None else mean_text(found, digits=2)
