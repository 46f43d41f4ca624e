"""What the arguments of a command mean: experiments, rows and columns of the paper, a budget of time."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import Plan, load_plan, parse_changes, preset_names
from fedadmm.core.errors import InputError
from fedadmm.report.runs import run_folders
from fedadmm.runs.listeners import TimeBudget

FEW = 20  # names that a sentence lists
LONGEST = 365 * 24 * 3600  # seconds of a budget


def experiments_of(
    plan: str, algorithms: str | None, *, changes: list[str] | None, rounds: int | None, seed: int | None
) -> list[Experiment]:
    """Return the experiments of a plan's variants, or of the algorithms that were named."""
    names = None if algorithms is None else names_in(algorithms)
    return plan_named(plan).experiments(names, changes=_changes(changes, rounds=rounds, seed=seed))


def experiment_of(
    plan: str, *, variant: str | None, changes: list[str] | None, rounds: int | None, seed: int | None
) -> Experiment:
    """Return the experiment of a plan, or of a variant of it, with the changes of the command line."""
    return plan_named(plan).experiment(variant, changes=_changes(changes, rounds=rounds, seed=seed))


def _changes(changes: list[str] | None, **options: int | None) -> dict[str, Any]:
    given = [f"{key}={value}" for key, value in options.items() if value is not None]
    return parse_changes([*(changes or []), *given])


def search_of(assignments: Sequence[str]) -> dict[str, list[Any]] | None:
    """Return the values to try by their keys, of "algorithm.rho=0.01,0.1,1", None if there are none."""
    found = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key or not text.strip():
            raise InputError(f"cannot search {assignment!r}; write key=values, such as algorithm.rho=0.01,0.1,1")
        values = parse_changes([f"{key}=[{text}]"])[key.strip()]
        if isinstance(values, str):  # words without quotation marks
            values = [parse_changes([f"{key}={part.strip()}"])[key.strip()] for part in text.split(",")]
        found[key.strip()] = [value for number, value in enumerate(values) if value not in values[:number]]
    return found or None


def plan_named(name: str) -> Plan:
    """Return the plan in a TOML file, or a preset's; a table of the paper is refused, because it is many runs."""
    if name in preset_names() or Path(name).exists():
        return load_plan(name)
    from fedadmm.studies.paper import PAPER

    if name in PAPER:
        raise InputError(f"{name} is many runs; use `fedadmm reproduce {name}`")
    return load_plan(name, elsewhere=PAPER)


def names_in(text: str) -> list[str]:
    """Return comma-separated names, each once."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise InputError(f"{text!r} lists a name that is empty; write them as fedavg,feddyn")
    return names


def folders_meant(paths: Sequence[Path]) -> list[Path]:
    """Return the folders that are meant: runs/* has pages and tables too, and folders of run folders such as tuning."""
    if len(paths) == 1:
        return [*paths]
    named = [path for path in paths if not path.is_file()] or paths
    return [folder for path in named for folder in ([*run_folders(path)] or [path])]


def columns_named(columns: str | None) -> list[str] | None:
    """Return the columns of a preset that were asked for, None for all."""
    return None if columns is None else names_in(columns)


def refuse(what: str, reason: str, *options: str) -> None:
    """Refuse options of this command that were given, and would change nothing."""
    context = click.get_current_context()
    for parameter in context.command.params:
        value, option = context.params.get(parameter.name or ""), parameter.opts[0]
        if option in options and value and value != parameter.default:
            raise InputError(f"{what} {reason}, so {option} means nothing here; leave it out")


def rows_named(algorithms: str | None, *, known: Iterable[str | None]) -> list[str]:
    """Return the rows of a preset that were asked for, all if none was; a method is all its rows: fedavg-0.1, ..."""
    labels = list(dict.fromkeys(map(str, known)))
    if algorithms is None:
        return labels
    meant = {
        name: [row for row in labels if row == name or row.startswith(f"{name}-")] for name in names_in(algorithms)
    }
    for name in (name for name, rows in meant.items() if not rows):
        if len(labels) <= FEW:
            raise InputError(f"there is no row {name!r}; use {', '.join(labels)}")
        methods = list(dict.fromkeys(row.partition("-")[0] for row in labels))
        shown = ", ".join((get_close_matches(name, [*methods, *labels]) or methods)[:FEW])
        raise InputError(f"there is no row {name!r} among {len(labels)}; use one such as {shown}")
    return list(dict.fromkeys(row for rows in meant.values() for row in rows))


def budget_of(text: str | None) -> TimeBudget:
    """Return a budget that begins now, of a duration such as 2h, 90m, 1h30m or 45s; None: it has no end."""
    if text is None:
        return TimeBudget(None)
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    if not any((hours, minutes, seconds)):
        raise InputError(f"budget={text!r} is not a duration; write 2h, 90m, 1h30m or 45s")
    if (total := hours * 3600 + minutes * 60 + seconds) > LONGEST:
        raise InputError(f"budget={text!r} is longer than a year; leave it out for no end")
    return TimeBudget(total)
