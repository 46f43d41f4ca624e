"""The command that reproduces the paper's tables and figures."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.console import say, show_rows, show_table
from fedadmm.cli.options import (
    BudgetOption,
    Columns,
    DataDir,
    SizeOption,
    VariantOption,
    budget_of,
    check_seeds,
    columns_named,
    cost_estimate,
    preset_named,
    refuse,
    rows_named,
)
from fedadmm.cli.progress import run_with_progress
from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.runs.listeners import Interruption, Listener, OutOfTimeError, TimeBudget
from fedadmm.studies.campaign import Job, Places, jobs_of, paper_report, play
from fedadmm.studies.cost_estimate import CostEstimate
from fedadmm.studies.paper import PAPER, Size, Study
from fedadmm.studies.paper.tuned import FILE as TUNED
from fedadmm.studies.paper.tuned import Tuned, published_values, read_tuned, values_of
from fedadmm.studies.ratios import arrivals_file, keep_ratios, overall, ratio_rows, read_arrivals

app = typer.Typer()


@app.command()
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
    variant: VariantOption = "printed",
    status: Annotated[bool, typer.Option("--status", help="Only tell what is done and what is left.")] = False,
    report: Annotated[Path | None, typer.Option(help="Make a report of what is done in this folder.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs in the making.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of the records of finished runs.")] = Path("results"),
    data_dir: DataDir = None,
) -> None:
    """Run what is missing of a table or figure of the paper, the cheapest run first.

    It can be stopped at any time. The same command goes on from there.

    Example: fedadmm reproduce table3 --size small --columns mnist_100/iid --seeds 1 --budget 10m
    """
    time_left = budget_of(budget)
    if seeds is not None:
        check_seeds(seeds)
    for folder in (out, results):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file, not a folder; give another")
    places, costs = Places(out, results), cost_estimate()
    found = read_tuned(out)
    chosen = list(PAPER.values()) if preset is None else [preset_named(preset)]
    if preset is None:
        if not status:
            raise InputError(f"no preset was named; use one of {', '.join(PAPER)}, or --status")
        refuse("--status", "is of all presets", {"--columns": columns, "--algorithms": algorithms})
    elif (table := chosen[0].table) is not None:
        given = {
            "--columns": columns,
            "--algorithms": algorithms,
            "--seeds": seeds,
            "--budget": budget,
            "--size": size != "paper",
            "--variant": variant != "printed",
            "--status": status,
            "--report": report,
        }
        refuse(preset, "is worked out, not run", given)
        show_rows(table(), title=chosen[0].title)
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
    if status:
        _print_status(by_preset, costs, size=size, results=results)
        return
    jobs = by_preset[chosen[0]]
    _tell_values(jobs, found, preset=chosen[0].name, size=size, variant=variant, out=out)
    interruption = Interruption()
    done = _run_missing(
        jobs, places=places, costs=costs, budget=time_left, data_dir=data_dir, interruption=interruption
    )
    if chosen[0].chosen and done:
        _print_ratios(chosen[0], jobs, results=results)
    if report is not None and done:
        _write_report(chosen[0], jobs, results=results, out=report)
    elif report is not None:
        say("There is no report: it is made of finished runs.")
    if interruption.asked:
        raise typer.Exit(130)


def _print_status(by_preset: dict[Study, list[Job]], costs: CostEstimate, *, size: Size, results: Path) -> None:
    names, numbers = ("preset", "column"), ("runs", "done", "hours spent", "hours left")
    columns, rows = (*names, *numbers), _status_rows(by_preset, costs)
    show_table("Done, and left on this machine", columns, rows, right=numbers, whole=columns)
    say(
        "Hours spent are those of the machine that made the runs, hours left are estimated from rounds or batches "
        "timed on this one." + (" Small versions: --size small." if size == "paper" else "")
    )
    for path in (arrivals_file(preset, results) for preset in by_preset if preset.chosen):
        if count := len(read_arrivals(path)):
            say(f"{path} has the rounds of arrival of {count} runs that are not kept.")


def _status_rows(by_preset: dict[Study, list[Job]], costs: CostEstimate) -> Iterator[tuple[str, ...]]:
    """Yield what is done, what it cost and what is left: of a single preset by its columns."""
    by_column = len(by_preset) == 1
    for preset, jobs in by_preset.items():
        groups: dict[str, list[Job]] = {}
        for job in jobs:
            groups.setdefault(job.paper_run.column if by_column else "all", []).append(job)
        for column, group in groups.items():
            spent = sum(job.seconds_spent for job in group) / 3600
            left = sum(job.seconds_left(costs) for job in group) / 3600
            done = sum(job.is_done for job in group)
            yield preset.name, column, str(len(group)), str(done), f"{spent:.2f}", f"{left:.2f}"


def _run_missing(
    jobs: Sequence[Job],
    *,
    places: Places,
    costs: CostEstimate,
    budget: TimeBudget,
    data_dir: Path | None,
    interruption: Interruption,
) -> int:
    """Run what the time allows, say how far that came, and return how many runs are done in all."""
    begun = []

    def run(experiment: Experiment, listener: Listener) -> bool:
        from fedadmm.data.fetch import ensure  # imports torch

        ensure(experiment.data.name, data_dir=data_dir)
        begun.append(experiment)
        try:
            with budget.enforced():
                ended = run_with_progress(
                    experiment, out=places.runs, data_dir=data_dir, interruption=interruption, listeners=[listener]
                )
        except OutOfTimeError:
            return False
        costs.learn(experiment, ended.history)
        return ended.status != "stopped"

    finished = list(play(jobs, places=places, costs=costs, budget=budget, run=run))
    done = sum(job.is_published for job in jobs) + len(finished)
    if budget.seconds is not None and done < len(jobs) and not begun and not finished:
        raise InputError(f"{budget.seconds:g} s are too short for a round of any run; give a longer --budget")
    say(
        f"{done} of {len(jobs)} runs are done, {len(finished)} of them now"
        + (f"; their records are in {places.results}" if done else "")
        + ("" if done == len(jobs) else "; the same command goes on from here")
    )
    return done


def _print_ratios(preset: Study, jobs: Iterable[Job], *, results: Path) -> None:
    found = keep_ratios(preset, paper_report(preset, jobs, results=results), results=results)
    if not found:
        say("No column has a run of every method yet, so nothing is compared.")
        return
    show_rows(
        ratio_rows(found, aside=preset.aside), title="Rounds to the target, and their ratio to the best constants'"
    )
    for method, ratio in overall(found, aside=preset.aside).items():
        say(f"{method}: {ratio:.2f} of the best constants' rounds on the problems that judge")


def _write_report(preset: Study, jobs: Iterable[Job], *, results: Path, out: Path) -> None:
    from fedadmm.report.writing import write_report  # imports matplotlib

    page = write_report(paper_report(preset, jobs, results=results), out, title=preset.title)
    say(f"Report: {page}")


def _rows(jobs: list[Job], algorithms: str | None) -> list[Job]:
    wanted = rows_named(algorithms, known=(job.experiment.label for job in jobs))
    return [job for job in jobs if job.experiment.label in wanted]


def _tell_values(jobs: Iterable[Job], found: Tuned, *, preset: str, size: Size, variant: str, out: Path) -> None:
    """Say which runs that are still to be made were not tuned, and which were tuned here and not by us."""
    missing = [job for job in jobs if not job.is_done]
    if untuned := [job for job in missing if not job.is_tuned]:
        rate = untuned[0].experiment.local.learning_rate
        options = " --size small" * (size == "small") + " --variant released" * (variant == "released")
        say(
            f"{_count(untuned)} no learning rate of {'its' if len(untuned) == 1 else 'their'} own yet, "
            f"so it is {rate}; `fedadmm tune {preset}{options}` finds it.",
            style="yellow",
        )
    published = published_values()
    if own := [job for job in missing if values_of(job.paper_run, found) != values_of(job.paper_run, published)]:
        say(f"{_count(own)} values of {out / TUNED}, which `fedadmm tune` wrote.")


def _count(jobs: Sequence[Job]) -> str:
    return f"{len(jobs)} run{' has' if len(jobs) == 1 else 's have'}"
