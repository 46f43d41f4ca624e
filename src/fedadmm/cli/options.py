"""Options that several commands share, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedadmm.algorithms import ALGORITHMS
from fedadmm.cli.console import err, say
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import Plan, load_plan, parse_changes, preset_names
from fedadmm.core.errors import InputError, near_names
from fedadmm.core.optional import NeedsEveryClient, trait
from fedadmm.runs.listeners import TimeBudget

if TYPE_CHECKING:
    from fedadmm.studies.cost_estimate import CostEstimate
    from fedadmm.studies.paper import Study

PlanArgument = Annotated[str, typer.Argument(help="An experiment's TOML file, or the name of a preset.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value: --set rounds=10 --set algorithm.rho=0.1 (repeatable)."),
]
Algorithms = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated variants of the file, or algorithms.", show_default="all of the file's variants"
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds; more than are there goes on from there.")]
Seed = Annotated[int | None, typer.Option(help="The seed of everything random.")]
RunArgument = Annotated[
    Path, typer.Argument(help="A run folder, such as runs/digits-fedadmm-0123456789.", show_default=False)
]
Out = Annotated[Path, typer.Option(help="Folder in which the run folder is made.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data files (see: fedadmm data list).")]
LogTo = Annotated[str, typer.Option(help="Also write the rounds for other tools: tensorboard,wandb,mlflow.")]
Columns = Annotated[
    str | None, typer.Option(help="Comma-separated columns, such as mnist_100/iid.", show_default="all")
]
BudgetOption = Annotated[
    str | None, typer.Option(help="Stop in time: 2h, 90m, 1h30m, 45s. The same command goes on from there.")
]
VariantOption = Annotated[
    Literal["printed", "released"], typer.Option(help="Algorithm 1 as printed, or what the paper's released code does.")
]
SizeOption = Annotated[
    Literal["paper", "small"],
    typer.Option(help="The paper's own size, or the same design on a small network and grey images."),
]


def experiments_of(
    plan: str, algorithms: str | None, *, changes: list[str] | None, rounds: int | None, seed: int | None
) -> list[Experiment]:
    """Return the experiments of a plan's variants, or of the algorithms that were named."""
    names = (
        names_in(algorithms)
        if algorithms
        else plan_named(plan).variants or [n for n, kind in ALGORITHMS.items() if not trait(kind(), NeedsEveryClient)]
    )
    return [experiment_of(plan, variant=n, changes=changes, rounds=rounds, seed=seed) for n in names]


def experiment_of(
    plan: str, *, variant: str | None, changes: list[str] | None, rounds: int | None, seed: int | None
) -> Experiment:
    """Return the experiment of a plan, or of a variant of it, with the changes of the command line."""
    table = parse_changes(changes or [])
    table |= {key: value for key, value in (("rounds", rounds), ("seed", seed)) if value is not None}
    return plan_named(plan).experiment(variant, changes=table)


def plan_named(name: str) -> Plan:
    """Return the plan in a TOML file, or a preset's; a table of the paper is refused, because it is many runs."""
    if name in preset_names() or Path(name).exists():
        return load_plan(name)
    from fedadmm.studies.paper import PAPER

    if name in PAPER:
        raise InputError(f"{name} is many runs; use `fedadmm reproduce {name}`")
    return load_plan(name, elsewhere=PAPER)


def names_in(text: str) -> list[str]:
    """Return comma-separated names."""
    return [name.strip() for name in text.split(",")]


def columns_named(columns: str | None) -> list[str] | None:
    """Return the columns of a preset that were asked for, None for all."""
    return None if columns is None else names_in(columns)


def refuse(what: str, reason: str, options: Mapping[str, object]) -> None:
    """Refuse options that were given, and would change nothing."""
    for option, value in options.items():
        if value:
            raise InputError(f"{what} {reason}, so {option} means nothing here; leave it out")


def check_seeds(seeds: int) -> None:
    """Refuse a number of seeds that is none."""
    if seeds < 1:
        raise InputError(f"seeds={seeds} is out of range; use a whole number from 1 on")


def preset_named(name: str) -> Study:
    """Return a preset of the paper."""
    from fedadmm.studies.paper import PAPER

    if name in PAPER:
        return PAPER[name]
    raise InputError(f"there is no table or figure {name!r}; {near_names(name, PAPER)}")


def rows_named(algorithms: str | None, *, known: Iterable[str | None]) -> list[str]:
    """Return the rows of a preset that were asked for, all if none was."""
    labels = list(dict.fromkeys(map(str, known)))
    wanted = labels if algorithms is None else names_in(algorithms)
    for name in wanted:
        if name not in labels:
            raise InputError(f"there is no row {name!r}; use {', '.join(labels)}")
    return wanted


def budget_of(text: str | None) -> TimeBudget:
    """Return a budget that begins now, of a duration such as 2h, 90m, 1h30m or 45s; None: it has no end."""
    if text is None:
        return TimeBudget(None)
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    if not any((hours, minutes, seconds)):
        raise InputError(f"budget={text!r} is not a duration; write 2h, 90m, 1h30m or 45s")
    return TimeBudget(hours * 3600 + minutes * 60 + seconds)


def cost_estimate() -> CostEstimate:
    """Return what runs cost on this machine; it says so where that has to be measured."""
    from fedadmm.studies.cost_estimate import CostEstimate

    return CostEstimate(on_probe=lambda steps: say(f"Timing {steps} on this machine ...", to=err))
