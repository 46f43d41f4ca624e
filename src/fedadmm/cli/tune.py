"""The command that finds each method's best values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedadmm.cli.arguments import budget_of, columns_named, experiments_of, refuse, rows_named, search_of
from fedadmm.cli.console import say, show_table
from fedadmm.cli.options import Algorithms, Budget, Changes, Columns, DataDir, Out, PlanArgument, Size, Variant
from fedadmm.cli.progress import CommandSession
from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.runs.records import TUNING
from fedadmm.runs.tuning import LEARNING_RATES, TUNED_FILE, Trial, at_the_edge, trial_rows
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import as_released

if TYPE_CHECKING:
    from fedadmm.api.result import Result
    from fedadmm.api.running import Planned


def tune_command(
    plan: PlanArgument,
    algorithms: Algorithms = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            help="Values to try of any key: algorithm.rho=0.01,0.1,1 (repeatable).", show_default="learning rates"
        ),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(help="Comma-separated learning rates.", show_default=",".join(map(str, LEARNING_RATES))),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from the experiment's own on.")] = 1,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of the two finalists of four.", show_default="the experiment's")
    ] = None,
    changes: Changes = None,
    columns: Columns = None,
    size: Size = "paper",
    variant: Variant = "printed",
    budget: Budget = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
) -> None:
    """Find each method's best values, of its learning rate or of any key, on held-out training examples.

    Successive halving: all candidates are trained a little, the better half goes on, twice as far. Every method gets
    the same number of rounds: its candidates, few or many, share about three times ROUNDS. It is judged by its metric,
    never on the test examples. What is found is written to OUT/tuned.toml, where `fedadmm compare --tuned` and
    `fedadmm reproduce` read it; the candidates' runs are in OUT/tuning, where `fedadmm report` and `fedadmm list` do
    not look.

    Example: fedadmm tune digits --algorithms fedadmm,feddyn --search algorithm.rho=0.01,0.1 --rounds 30
    """
    tried, grid_of_rates = search_of(search or []), _numbers(rates)
    if tried is not None and rates is not None:
        if twice := {"learning_rate", "local.learning_rate"} & tried.keys():
            raise InputError(f"--rates={rates} are values of {min(twice)}, which --search has too; give one of the two")
        tried["learning_rate"] = grid_of_rates
    released = variant == "released"
    if plan in PAPER:
        refuse(plan, "is fixed by the paper", "--set")
        experiments = _of_paper(plan, algorithms, columns=columns, size=size, released=released)
    else:
        refuse(plan, "is not a preset of the paper", "--columns", "--size", "--variant")
        experiments = experiments_of(plan, algorithms, changes=changes, rounds=rounds, seed=None)
    time_left = budget_of(budget)
    from fedadmm.api.tune import tuned  # imports torch, which a mistake has no need of

    session = CommandSession(out / TUNING, data_dir, tell_refused=False)

    def run_all(planned: Sequence[Planned]) -> Sequence[Result]:
        results = session.run_all_in_time(planned, time_left)
        if results is not None:
            return results
        reason, code = ("Stopped", 130) if session.interruption.asked else ("The time is up", 0)
        say(f"{reason}; the same command goes on from here")
        raise typer.Exit(code)

    for experiment, trials in tuned(
        experiments, search=tried, rates=grid_of_rates, rounds=rounds, seeds=seeds, out=out, run_all=run_all
    ):
        _show(trials, title=f"{experiment.method}, {experiment.name}, {seeds} seed{'s' * (seeds > 1)}")
    say(f"The winners, first in each table, are in {out / TUNED_FILE}")


def _show(trials: Sequence[Trial], *, title: str) -> None:
    winner, *others = trial_rows(trials)
    columns = [*winner]
    order = f"Sorted by rounds trained, then by rounds to target, then by {trials[0].metric.name}."
    rows = [[f"[bold]{text}" for text in winner.values()], *(row.values() for row in others)]
    show_table(title, columns, rows, right=columns[1:], whole=columns, caption=order)
    for sentence in at_the_edge(trials):
        say(sentence)


def _of_paper(
    name: str, algorithms: str | None, *, columns: str | None, size: Size, released: bool
) -> list[Experiment]:
    runs = PAPER[name].runs(size, columns=columns_named(columns))
    tuned = [run.tuned_as for run in (as_released(runs) if released else runs) if run.tuned_as is not None]
    unique = {(run.name, run.label): run for run in tuned}
    if not unique:
        raise InputError(f"nothing of {name} is tuned: its values are given; use `fedadmm reproduce {name}`")
    wanted = rows_named(algorithms, known=(run.label for run in unique.values()))
    return [run for run in unique.values() if run.label in wanted]


def _numbers(text: str | None) -> list[float]:
    try:
        return list(LEARNING_RATES if text is None else dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise InputError(f"rates={text!r} is not a list of numbers; write them as 0.01,0.1") from None
