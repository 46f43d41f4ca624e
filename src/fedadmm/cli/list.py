"""The command that lists what there is: presets, algorithms, the paper's tables and figures, runs."""

from pathlib import Path

from rich.markup import escape

from fedadmm.algorithms import ALGORITHMS
from fedadmm.cli.console import err, say, show_table
from fedadmm.cli.console import out as console
from fedadmm.cli.options import Out
from fedadmm.cli.report import tell_left_out
from fedadmm.config.algorithm_table import DEFAULT
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import preset_descriptions
from fedadmm.report.methods import methods_of
from fedadmm.report.runs import RunData, list_runs
from fedadmm.studies.costs import CostEstimate
from fedadmm.studies.paper import PAPER, Size


def list_command(out: Out = Path("runs")) -> None:
    """List presets, algorithms, the paper's tables and figures with their cost, and the runs in a folder."""
    presets = preset_descriptions().items()
    show_table("Presets: fedadmm run PRESET", ("preset", "what"), presets, whole=("preset",))
    names = (f"{name} (the default)" if name == DEFAULT else name for name in ALGORITHMS)
    console.print(f"algorithms: {', '.join(names)}")
    _show_paper()
    runs, left_out = list_runs(out)
    tell_left_out(left_out)
    if runs:
        show_table(f"Runs in {escape(str(out))}", ("run", "rounds", "best", "status"), map(_run_row, runs))
    else:
        console.print(f"runs:       none in {out}")


def _run_row(run: RunData) -> tuple[str, ...]:
    best = methods_of([run])[0].best
    score = "-" if best is None else f"{run.metric.name} {best.text(run.metric)}"
    return run.path.name, f"{len(run.rounds)}/{run.experiment['rounds']}", score, run.status


def _show_paper() -> None:
    """Print every table and figure of the paper with its number of runs, and its cost where it is known."""
    estimate = cost_estimate()
    sizes: tuple[Size, Size] = ("paper", "small")
    rows = []
    for study in PAPER.values():
        costs = [_cost([run.experiment for run in study.runs(size)], study.seeds(size), estimate) for size in sizes]
        at_most = "" if study.default is None else "≤"
        shown = [f"{at_most}{text}" if text not in ("-", "?") else text for cost in costs for text in cost]
        rows.append((study.name, *shown, study.title))
    numbers = ("paper\nruns", "paper\nhours", "small\nruns", "small\nhours")
    show_table(
        "The paper: fedadmm reproduce PRESET [--size small]",
        ("preset", *numbers, "what"),
        rows,
        right=numbers,
        whole=("preset", *numbers),
        caption="Runs and hours on this machine, at the paper's size and with --size small.\n"
        "Where hours are ?, `fedadmm reproduce --status` times some batches and estimates them.\n"
        "≤: a race is often decided without most of its runs; --status counts those that it needs.",
    )


def cost_estimate() -> CostEstimate:
    """Return what runs cost on this machine; it says so where that has to be measured."""
    return CostEstimate(on_probe=lambda steps: say(f"Timing {steps} on this machine ...", to=err))


def _cost(experiments: list[Experiment], num_seeds: int, estimate: CostEstimate) -> tuple[str, str]:
    """Return the number of runs, and how many hours they take together."""
    if not experiments:
        return "-", "-"
    hours = "?"
    if all(estimate.is_known(experiment) for experiment in experiments):
        seconds = sum(estimate.seconds_from_start(experiment, rounds=experiment.rounds) for experiment in experiments)
        hours = _hours_text(num_seeds * seconds / 3600)
    return str(num_seeds * len(experiments)), hours


def _hours_text(hours: float) -> str:
    return "<0.1" if 0 < hours < 0.1 else f"{hours:.1f}"
