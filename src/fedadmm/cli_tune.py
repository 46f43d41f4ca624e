"""The command that finds each method's best learning rate."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedadmm.cli_options import (
    Algorithms,
    BudgetOption,
    Changes,
    Columns,
    DataDir,
    Out,
    PlanArgument,
    SizeOption,
    experiments_of,
    parse_duration,
)
from fedadmm.cli_progress import Interruption, StoppedAtOnce, run_with_progress
from fedadmm.core.errors import InputError
from fedadmm.data.fetch import ensure
from fedadmm.experiments.campaign import Budget
from fedadmm.experiments.experiment import Experiment
from fedadmm.experiments.paper import PAPER, Size
from fedadmm.experiments.paper.methods import LEARNING_RATES
from fedadmm.experiments.paper.tuned import write_tuned
from fedadmm.experiments.records import Record
from fedadmm.experiments.tuning import Trial, grid, search

console = Console()


def tune_command(
    plan: PlanArgument,
    algorithms: Algorithms = None,
    rates: Annotated[str, typer.Option(help="Comma-separated learning rates.")] = ",".join(
        map(str, LEARNING_RATES)
    ),
    seeds: Annotated[int, typer.Option(help="Number of seeds, from the experiment's own on.")] = 1,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of the two finalists of four. [default: the experiment's]")
    ] = None,
    changes: Changes = None,
    columns: Columns = None,
    size: SizeOption = "paper",
    budget: BudgetOption = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
) -> None:
    """Find each method's best learning rate on held-out training examples, never on the test examples.

    Successive halving: all candidates are trained a little, the better half goes on, twice as far. Every method gets
    the same number of rounds. What is found is written to OUT/tuned.toml, where `fedadmm reproduce` reads it.

    Example: fedadmm tune digits --algorithms fedavg,feddyn --rounds 30
    """
    grid_of_rates = _numbers(rates)
    if seeds < 1:
        raise InputError(f"seeds={seeds} is out of range; use a whole number from 1 on")
    if plan in PAPER:
        experiments = _of_paper(plan, algorithms, columns=columns, size=size)
    else:
        experiments = experiments_of(plan, algorithms, changes=changes, rounds=rounds, seed=None)
    time_left = Budget(None if budget is None else parse_duration(budget))
    interruption = Interruption()

    def run(experiment: Experiment) -> tuple[list[Record], bool]:
        ensure(experiment.data.name, data_dir=data_dir)
        ended = run_with_progress(
            experiment,
            out=out,
            data_dir=data_dir,
            interruption=interruption,
            proceed=lambda record: time_left.has_time_for(record.seconds),
        )
        if ended.status == "interrupted":
            raise StoppedAtOnce
        return ended.history, ended.status == "diverged"

    for experiment in experiments:
        trials = search(
            experiment,
            grid(experiment, rates=grid_of_rates),
            rounds=rounds or experiment.rounds,
            seeds=range(experiment.seed, experiment.seed + seeds),
            run=run,
        )
        label = experiment.label or experiment.algorithm_name
        path = write_tuned(out, experiment.name, label, trials[0].values)
        console.print(_table(trials, title=f"{label}, {experiment.name}, {seeds} seed{'s' * (seeds > 1)}"))
    console.print(f"The winners, first in each table, are in {path}", soft_wrap=True)


def _table(trials: Sequence[Trial], *, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("values", "rounds trained", "to target", "accuracy"):
        table.add_column(column, justify="left" if column == "values" else "right", no_wrap=True)
    for number, trial in enumerate(trials):
        table.add_row(*_row(trial), style="bold" if number == 0 else None)
    return table


def _of_paper(name: str, algorithms: str | None, *, columns: str | None, size: Size) -> list[Experiment]:
    cells = [cell for cell in PAPER[name].cells(size) if columns is None or cell.column in columns.split(",")]
    unique = {(run.name, run.label): run for cell in cells if (run := cell.tuned_as) is not None}
    wanted = None if algorithms is None else [label.strip() for label in algorithms.split(",")]
    found = [run for run in unique.values() if wanted is None or run.label in wanted]
    if not found:
        raise InputError(
            f"nothing of {name} is tuned for columns={columns} and algorithms={algorithms}; "
            f"the columns are {', '.join(dict.fromkeys(cell.column for cell in PAPER[name].cells(size)))}"
        )
    return found


def _row(trial: Trial) -> tuple[str, str, str, str]:
    values = ", ".join(f"{key} {value:g}" for key, value in trial.values.items())
    arrival = "-" if math.isinf(trial.arrival) else f"{trial.arrival:.1f}"
    return values, str(trial.rounds), arrival, f"{trial.accuracy:.3f}"


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"rates={text!r} is no list of numbers; write them as 0.01,0.1") from None
