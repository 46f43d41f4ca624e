"""The paper as commands: tune, reproduce, and what a preset costs."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from fedadmm.cli_options import (
    BudgetOption,
    Columns,
    DataDir,
    SizeOption,
    check_seeds,
    columns_named,
    parse_duration,
    preset_named,
    refuse,
    rows_named,
)
from fedadmm.cli_progress import Interruption, run_with_progress
from fedadmm.core.errors import InputError
from fedadmm.data.fetch import ensure
from fedadmm.experiments.campaign import Budget, Job, Places, jobs_of, play
from fedadmm.experiments.experiment import Experiment
from fedadmm.experiments.pace import Pace
from fedadmm.experiments.paper import PAPER, Preset, Size, WorkedOut
from fedadmm.experiments.paper.tuned import read_tuned
from fedadmm.experiments.records import Record
from fedadmm.report.ratios import arrivals_of, comparisons, keep_arrivals, overall, ratio_rows
from fedadmm.report.runs import read_run
from fedadmm.report.section import Published, PublishedFor, Section

console = Console()
progress_console = Console(stderr=True)


def reproduce_command(
    preset: Annotated[
        str | None, typer.Argument(help="A table or figure of the paper, such as table3 (see: fedadmm list).")
    ] = None,
    columns: Columns = None,
    algorithms: Annotated[str | None, typer.Option(help="Comma-separated rows.", show_default="all")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds.", show_default="the paper's five; fewer when small")
    ] = None,
    budget: BudgetOption = None,
    size: SizeOption = "paper",
    variant: Annotated[
        Literal["printed", "released"],
        typer.Option(help="Algorithm 1 as printed, or what the paper's released code does."),
    ] = "printed",
    status: Annotated[
        bool, typer.Option("--status", help="Only tell what is done and what is left.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Make a report of what is done in this folder.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs in the making.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of the records of finished runs.")] = Path("results"),
    data_dir: DataDir = None,
) -> None:
    """Run what is missing of a table or figure of the paper, the cheapest first; it can be stopped and goes on.

    Example: fedadmm reproduce table3 --size small --columns mnist_100/iid --seeds 1 --budget 10m
    """
    seconds = None if budget is None else parse_duration(budget)
    if seeds is not None:
        check_seeds(seeds)
    places, pace = Places(out, results), _pace()
    found = read_tuned(out)
    chosen = list(PAPER.values()) if preset is None else [preset_named(preset)]
    if preset is None:
        if not status:
            raise InputError(f"no preset was named; use one of {', '.join(PAPER)}, or --status")
        refuse("--status", "is of all presets", {"--columns": columns, "--algorithms": algorithms})
    elif (table := chosen[0].table) is not None:
        options = {"--columns": columns, "--algorithms": algorithms, "--seeds": seeds, "--budget": budget}
        refuse(preset, "is worked out, not run", options | {"--status": status, "--report": report})
        _print_worked_out(chosen[0].title, table())
        return
    by_preset = {
        one: _rows(
            jobs_of(
                one,
                places=places,
                found=found,
                size=size,
                columns=columns_named(columns),
                num_seeds=seeds,
                released=variant == "released",
            ),
            algorithms,
        )
        for one in chosen
    }
    for job in (job for jobs in by_preset.values() for job in jobs):
        pace.learn(job.experiment, job.records)
    if status:
        _print_status(by_preset, pace)
        return
    jobs = by_preset[chosen[0]]
    _tell_untuned(jobs, preset=chosen[0].name, size=size)
    interruption, begun = Interruption(), []

    def run(experiment: Experiment, proceed: Callable[[Record], bool]) -> bool:
        ensure(experiment.data.name, data_dir=data_dir)
        begun.append(experiment)
        ended = run_with_progress(
            experiment, out=out, data_dir=data_dir, interruption=interruption, proceed=proceed
        )
        return ended.status != "interrupted"

    finished = list(play(jobs, places=places, pace=pace, budget=Budget(seconds), run=run))
    done = sum(job.is_done for job in jobs) + len(finished)
    if budget is not None and done < len(jobs) and not begun:
        raise InputError(f"--budget {budget} is too short for a start and a round of any run; give more")
    console.print(
        f"{done} of {len(jobs)} runs are done, {len(finished)} of them now"
        + (f"; their records are in {results}" if done else "")
        + ("" if done == len(jobs) else "; the same command goes on from here"),
        soft_wrap=True,
    )
    if chosen[0].chosen and done:
        _print_ratios(chosen[0], jobs, results=results)
    if report is not None and done:
        _write_report(chosen[0], jobs, results=results, out=report)
    if interruption.asked:
        raise typer.Exit(130)


class PaperReport(NamedTuple):
    """The finished runs of a preset, a section for each column, and what the paper prints for them."""

    sections: list[Section]
    published: PublishedFor


def paper_report(preset: Preset, jobs: Iterable[Job], *, results: Path) -> PaperReport:
    """Return what a report of a preset is made of; columns without a finished run are left out."""
    sections: dict[str, Section] = {}
    published: dict[str, Published] = {}
    for job in jobs:
        folder = results / job.experiment.folder_name
        if not folder.exists():
            continue
        column, rounds = job.cell.column, job.cell.rounds
        sections.setdefault(column, Section(column, [])).runs.append(read_run(folder))
        if rounds is not None:
            where = f"{preset.title.partition(':')[0]}, {column}"
            published[folder.name] = Published(where, int(rounds) if rounds.isdigit() else None)
    return PaperReport(list(sections.values()), lambda run: published.get(run.path.name))


def kept_arrivals(preset: Preset, results: Path) -> Path:
    """Return the file in which a preset of many runs keeps the rounds of their arrival."""
    return results / f"{preset.name}.csv"


def _print_ratios(preset: Preset, jobs: Iterable[Job], *, results: Path) -> None:
    arrivals = arrivals_of(paper_report(preset, jobs, results=results).sections)
    found = comparisons(keep_arrivals(kept_arrivals(preset, results), arrivals), chosen=preset.chosen)
    if not found:
        console.print("No column has a run of every method yet, so nothing is compared.")
        return
    rows = ratio_rows(found, aside=preset.aside)
    table = Table(*rows[0], title="Rounds to the target, and their ratio to the best constants'")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    for method, ratio in overall(found, aside=preset.aside).items():
        console.print(f"{method}: {ratio:.2f} of the best constants' rounds on the problems that judge")


def _write_report(preset: Preset, jobs: Iterable[Job], *, results: Path, out: Path) -> None:
    # Here, for matplotlib and plotly take a second to import.
    from fedadmm.report.writing import write_report

    sections, published = paper_report(preset, jobs, results=results)
    page = write_report(sections, out, title=preset.title, published=published)
    console.print(f"Report: {page}", soft_wrap=True, markup=False, highlight=False)


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
    pace = _pace()
    sizes: tuple[Size, Size] = ("paper", "small")
    for preset in PAPER.values():
        cost = []
        for size in sizes:
            runs, seeds = [cell.experiment for cell in preset.cells(size)], preset.seeds(size)
            hours = seeds * sum(pace.seconds(run, rounds=run.rounds) for run in runs) / 3600
            cost += [str(seeds * len(runs) or "-"), _hours_text(hours) if runs else "-"]
        table.add_row(preset.name, *cost, preset.title)
    return table


def _hours_text(hours: float) -> str:
    return "<0.1" if 0 < hours < 0.1 else f"{hours:.1f}"


def _pace() -> Pace:
    return Pace(
        on_probe=lambda steps: progress_console.print(f"Timing {steps} on this machine ...", highlight=False)
    )


def _rows(jobs: list[Job], algorithms: str | None) -> list[Job]:
    wanted = rows_named(algorithms, known=(job.experiment.label for job in jobs))
    return [job for job in jobs if job.experiment.label in wanted]


def _tell_untuned(jobs: Iterable[Job], *, preset: str, size: Size) -> None:
    untuned = [job for job in jobs if not job.is_tuned and not job.is_done]
    if untuned:
        rate = untuned[0].experiment.local.learning_rate
        console.print(
            f"[yellow]{len(untuned)} runs have no learning rate of their own yet and use {rate}; "
            f"`fedadmm tune {preset}{' --size small' if size == 'small' else ''}` finds it.",
            soft_wrap=True,
        )


def _print_status(by_preset: dict[Preset, list[Job]], pace: Pace) -> None:
    table = Table(title="Done, and left on this machine", title_justify="left")
    for column in ("preset", "column", "runs", "done", "hours spent", "hours left"):
        table.add_column(column, justify="left" if column in ("preset", "column") else "right", no_wrap=True)
    by_column = len(by_preset) == 1
    for preset, jobs in by_preset.items():
        groups: dict[str, list[Job]] = {}
        for job in jobs:
            groups.setdefault(job.cell.column if by_column else "all", []).append(job)
        for column, group in groups.items():
            spent = sum(job.seconds_spent for job in group) / 3600
            left = sum(job.seconds_left(pace) for job in group) / 3600
            done = sum(job.is_done for job in group)
            table.add_row(preset.name, column, str(len(group)), str(done), f"{spent:.2f}", f"{left:.2f}")
    console.print(table)
    console.print("Hours left are estimated from runs made here, or else from batches timed here.")


def _print_worked_out(title: str, worked_out: WorkedOut) -> None:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(worked_out.columns):
        table.add_column(column, no_wrap=number == 0, overflow="fold")
    for row in worked_out.rows:
        table.add_row(*row)
    console.print(table)
