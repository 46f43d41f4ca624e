"""The command that reproduces the paper's tables and figures."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.arguments import budget_of, columns_named, refuse, rows_named
from fedadmm.cli.console import say, show_rows, show_table
from fedadmm.cli.list import cost_estimate
from fedadmm.cli.options import Budget, Columns, DataDir, Size, Variant
from fedadmm.cli.progress import CommandSession
from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError, near_names
from fedadmm.core.settings import check_seeds
from fedadmm.runs.goal import Goal
from fedadmm.runs.listeners import TimeBudget
from fedadmm.runs.tuning import TUNED_FILE, Tuned
from fedadmm.studies import judging, ratios
from fedadmm.studies.campaign import Job, NextRun, Places, jobs_of, paper_report, play
from fedadmm.studies.costs import CostEstimate
from fedadmm.studies.paper import PAPER, Study
from fedadmm.studies.paper.study import published_values, read_tuned, values_of


def reproduce_command(
    preset: Annotated[
        str | None, typer.Argument(help="A table or figure of the paper, such as table3 (see: fedadmm list).")
    ] = None,
    columns: Columns = None,
    algorithms: Annotated[str | None, typer.Option(help="Comma-separated rows.", show_default="all")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds.", show_default="the paper's five; fewer when small")
    ] = None,
    budget: Budget = None,
    size: Size = "paper",
    variant: Variant = "printed",
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
    if out.resolve() == results.resolve():
        raise InputError(
            f"--out and --results are both {out}, and a finished run is moved from one to the other; give two folders"
        )
    places, costs, found = Places(out, results), cost_estimate(), read_tuned(out)
    if preset is not None and preset not in PAPER:
        raise InputError(f"there is no table or figure {preset!r}; {near_names(preset, PAPER)}")
    chosen = list(PAPER.values()) if preset is None else [PAPER[preset]]
    study = chosen[0]
    if preset is None:
        if not status:
            raise InputError(f"no preset was named; use one of {', '.join(PAPER)}, or --status")
        refuse("--status", "is of all presets", "--columns", "--algorithms")
    elif study.table is not None:
        given = ("--columns", "--algorithms", "--seeds", "--budget", "--size", "--variant", "--status", "--report")
        refuse(preset, "is worked out, not run", *given)
        show_rows(study.table(), title=study.title)
        return

    def wanted_jobs(study: Study) -> list[Job]:
        wanted, released = columns_named(columns), variant == "released"
        jobs = jobs_of(study, places=places, found=found, size=size, columns=wanted, num_seeds=seeds, released=released)
        rows = rows_named(algorithms, known=(job.experiment.label for job in jobs))
        return [job for job in jobs if job.experiment.label in rows]

    by_study = {study: wanted_jobs(study) for study in chosen}
    if status:
        refuse("--status", "only tells what is done", "--report")
        by_study = {study: _needed(study)(jobs) for study, jobs in by_study.items()}
        _print_status(by_study, costs, size=size, results=results)
        return
    jobs = by_study[study]
    _tell_values(jobs, found, preset=study.name, size=size, variant=variant, out=out)
    session = CommandSession(out, data_dir)
    done = _run_missing(study, jobs, session=session, places=places, costs=costs, budget=time_left)
    if done and study.keeps_arrivals:
        _print_ratios(study, jobs, results=results)
    if done and report is not None:
        from fedadmm.report.page import write_report  # imports matplotlib

        page = write_report(paper_report(study, jobs, results=results), report, title=study.title)
        say(f"Report: {page}")
    elif report is not None:
        say("There is no report: it is made of finished runs.")
    if session.interruption.asked:
        raise typer.Exit(130)


def _print_status(by_preset: dict[Study, list[Job]], costs: CostEstimate, *, size: Size, results: Path) -> None:
    names, numbers = ("preset", "column"), ("runs", "done", "hours spent", "hours left")
    columns, rows = (*names, *numbers), _status_rows(by_preset, costs)
    show_table("Done, and left on this machine", columns, rows, right=numbers, whole=columns)
    say(
        "Hours spent are those of the machine that made the runs, hours left are estimated from rounds or batches "
        "timed on this one."
        + (" Races need more runs as they go on." if any(preset.default for preset in by_preset) else "")
        + (" Small versions: --size small." if size == "paper" else "")
    )
    for path in (ratios.arrivals_file(preset, results) for preset in by_preset if preset.keeps_arrivals):
        if count := len(ratios.read_arrivals(path)):
            say(f"{path} has the rounds of arrival of {count} runs. They count as done; their records are not kept.")


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


def _needed(study: Study) -> Callable[[Iterable[Job]], list[Job]]:
    """Return what tells the runs that a study needs: all, or those of a race that is not decided without them."""
    return list if study.default is None else partial(judging.needed, study)


def _run_missing(
    study: Study,
    jobs: Sequence[Job],
    *,
    session: CommandSession,
    places: Places,
    costs: CostEstimate,
    budget: TimeBudget,
) -> int:
    """Run what the time allows, say how far that came, and return how many runs are done in all."""
    begun = []

    def run(waiting: Sequence[Experiment], next_run: NextRun) -> Iterator[tuple[Experiment, bool]]:
        from fedadmm.runs.side_by_side import processes_for  # imports torch

        at_once = processes_for(waiting, records_only=True)

        def next_one() -> Experiment | None:
            experiment = next_run(at_once)
            if experiment is not None:
                begun.append(experiment)
            return experiment

        for experiment, history in session.run_as_needed(next_one, budget, at_once=at_once):
            costs.learn(experiment, history, at_once=at_once)
            yield experiment, Goal.of(experiment).status(history) != "stopped"

    needed = _needed(study)
    finished = list(play(jobs, places=places, costs=costs, budget=budget, run=run, needed=needed))
    wanted = needed(job.read(places) for job in jobs)
    done = sum(job.is_published for job in wanted)
    if budget.seconds is not None and done < len(wanted) and not begun and not finished:
        raise InputError(f"{budget.seconds:g} s are too short for a round of any run; give a longer --budget")
    say(
        f"{done} of {len(wanted)} runs are done, {len(finished)} of them now"
        + (f"; their records are in {places.results}" if done else "")
        + ("" if done == len(wanted) else "; the same command goes on from here")
    )
    return done


def _print_ratios(preset: Study, jobs: Iterable[Job], *, results: Path) -> None:
    kept = ratios.keep_ended(preset, paper_report(preset, jobs, results=results), results=results)
    if preset.default is not None:
        _print_judgements(preset, kept)
        return
    found = ratios.comparisons(kept, chosen=preset.chosen)
    if not found:
        say("No column has a run of every method yet, so nothing is compared.")
        return
    title = "Rounds to the target, and their ratio to the family's best constants'"
    show_rows(ratios.ratio_rows(found, aside=preset.aside), title=title)
    for method, mean in ratios.overall(found, aside=preset.aside).items():
        say(f"{method}: {mean.ratio:.2f} of its family's best constants' rounds, over {mean.num_problems} problems")


def _print_judgements(preset: Study, kept: Sequence[ratios.Arrival]) -> None:
    for title, rows, means in judging.judged_tables(preset, kept):
        if not rows:
            say("No column has every method's race and its winner with every seed yet, so nothing is compared.")
            return
        show_rows(rows, title=f"Rounds to the target. {title}")
        if means:
            say(means)


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
        say(f"{_count(own)} values of {out / TUNED_FILE}, which `fedadmm tune` wrote.")


def _count(jobs: Sequence[Job]) -> str:
    return f"{len(jobs)} run{' has' if len(jobs) == 1 else 's have'}"
