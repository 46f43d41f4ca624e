"""The command that finds each method's best learning rate."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.arguments import budget_of, check_seeds, columns_named, experiments_of, refuse, rows_named
from fedadmm.cli.console import say, show_table
from fedadmm.cli.options import Algorithms, Budget, Changes, Columns, DataDir, Out, PlanArgument, Size, Variant
from fedadmm.cli.progress import Session
from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.runs.records import TUNING, Record
from fedadmm.runs.tuning import LEARNING_RATES, Trial, Values, grid, search
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import as_released, read_tuned, write_tuned


def tune_command(
    plan: PlanArgument,
    algorithms: Algorithms = None,
    rates: Annotated[str, typer.Option(help="Comma-separated learning rates.")] = ",".join(map(str, LEARNING_RATES)),
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
    """Find each method's best learning rate on held-out training examples, never on the test examples.

    Successive halving: all candidates are trained a little, the better half goes on, twice as far. Every method gets
    the same number of rounds. What is found is written to OUT/tuned.toml, where `fedadmm reproduce` reads it; the
    candidates' runs are in OUT/tuning, where `fedadmm report` and `fedadmm list` do not look.

    Example: fedadmm tune digits --algorithms fedavg,feddyn --rounds 30
    """
    grid_of_rates = _numbers(rates)
    read_tuned(out)  # if its file is damaged, it is better to know it before the search
    check_seeds(seeds)
    if rounds is not None and rounds < 2:
        raise InputError(f"rounds={rounds} is out of range; use a whole number from 2 on")
    released = variant == "released"
    if plan in PAPER:
        refuse(plan, "is fixed by the paper", "--set")
        experiments = _of_paper(plan, algorithms, columns=columns, size=size, released=released)
    else:
        refuse(plan, "is not a preset of the paper", "--columns", "--size", "--variant")
        experiments = experiments_of(plan, algorithms, changes=changes, rounds=rounds, seed=None)
    time_left = budget_of(budget)
    session = Session(out / TUNING, data_dir, tell_refused=False)

    def run(experiment: Experiment) -> tuple[list[Record], bool]:
        ended = session.run_in_time(experiment, time_left, values=_values_text(_values_in(experiment)))
        if ended is not None and ended.status != "stopped":
            return ended.history, ended.status == "diverged"
        reason, code = ("Stopped", 130) if session.interruption.asked else ("The time is up", 0)
        say(f"{reason}; the same command goes on from here")
        raise typer.Exit(code)

    for experiment in experiments:
        candidates, all_seeds = grid(experiment, rates=grid_of_rates), range(experiment.seed, experiment.seed + seeds)
        trials = search(experiment, candidates, rounds=rounds or experiment.rounds, seeds=all_seeds, run=run)
        label = experiment.method
        path = write_tuned(out, experiment.name, label, trials[0].values)
        _show(trials, title=f"{label}, {experiment.name}, {seeds} seed{'s' * (seeds > 1)}")
    say(f"The winners, first in each table, are in {path}")


def _show(trials: Sequence[Trial], *, title: str) -> None:
    metric = trials[0].metric
    columns = ["values", "rounds trained", "to target", metric.name]
    if any(trial.refused for trial in trials):
        columns.append("refused updates")
    winner, *others = [_row(trial)[: len(columns)] for trial in trials]
    order = f"Sorted by rounds trained, then by rounds to target, then by {metric.name}."
    rows = [[f"[bold]{text}" for text in winner], *others]
    show_table(title, columns, rows, right=columns[1:], whole=columns, caption=order)


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


def _row(trial: Trial) -> tuple[str, ...]:
    arrival = "-" if math.isinf(trial.arrival) else f"{trial.arrival:.1f}"
    score = "-" if math.isinf(trial.score) else trial.metric.text(trial.score)
    return _values_text(trial.values), str(trial.rounds), arrival, score, str(trial.refused)


def _values_in(experiment: Experiment) -> Values:
    rate, rho = experiment.local.learning_rate, getattr(experiment.algorithm, "rho", None)
    return {key: v for key, v in (("rate", rate), ("rho", rho)) if isinstance(v, float)}


def _values_text(values: Values) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in values.items())


def _numbers(text: str) -> list[float]:
    try:
        return list(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise InputError(f"rates={text!r} is not a list of numbers; write them as 0.01,0.1") from None
