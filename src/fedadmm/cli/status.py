"""What the paper's tables and figures cost on this machine, and how much of them is done."""

from rich.console import Console
from rich.table import Table

from fedadmm.studies.campaign import Job
from fedadmm.studies.cost_estimate import Pace
from fedadmm.studies.paper import PAPER, Size, Study

progress_console = Console(stderr=True)


def presets_table() -> Table:
    """Return every table and figure of the paper with its number of runs and its estimated cost."""
    table = Table(
        title="The paper: fedadmm reproduce PRESET [--size small]",
        title_justify="left",
        caption="Runs and hours on this machine, at the paper's size and with --size small.",
        caption_justify="left",
    )
    table.add_column("preset", no_wrap=True)
    for column in ("paper\nruns", "paper\nhours", "small\nruns", "small\nhours"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("what")
    pace = pace_here()
    sizes: tuple[Size, Size] = ("paper", "small")
    for preset in PAPER.values():
        cost = []
        for size in sizes:
            runs, seeds = [run.experiment for run in preset.runs(size)], preset.seeds(size)
            hours = seeds * sum(pace.seconds_from_start(run, rounds=run.rounds) for run in runs) / 3600
            cost += [str(seeds * len(runs) or "-"), _hours_text(hours) if runs else "-"]
        table.add_row(preset.name, *cost, preset.title)
    return table


def _hours_text(hours: float) -> str:
    return "<0.1" if 0 < hours < 0.1 else f"{hours:.1f}"


def pace_here() -> Pace:
    """Return the pace of this machine, which says so where it has to be measured."""
    return Pace(on_probe=lambda steps: progress_console.print(f"Timing {steps} on this machine ...", highlight=False))


def status_table(by_preset: dict[Study, list[Job]], pace: Pace) -> Table:
    """Return what is done, what it cost and what is left: of a single preset by its columns."""
    table = Table(title="Done, and left on this machine", title_justify="left")
    for column in ("preset", "column", "runs", "done", "hours spent", "hours left"):
        table.add_column(column, justify="left" if column in ("preset", "column") else "right", no_wrap=True)
    by_column = len(by_preset) == 1
    for preset, jobs in by_preset.items():
        groups: dict[str, list[Job]] = {}
        for job in jobs:
            groups.setdefault(job.paper_run.column if by_column else "all", []).append(job)
        for column, group in groups.items():
            spent = sum(job.seconds_spent for job in group) / 3600
            left = sum(job.seconds_left(pace) for job in group) / 3600
            done = sum(job.is_done for job in group)
            table.add_row(preset.name, column, str(len(group)), str(done), f"{spent:.2f}", f"{left:.2f}")
    return table
