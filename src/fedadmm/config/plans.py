"""Experiment files and presets: a table, its named variants, and changes given on the command line."""

import copy
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

from fedadmm.algorithms import ALGORITHMS
from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError, look_for_modules_in, near_names
from fedadmm.core.files import Table, parse_toml
from fedadmm.core.optional import NeedsEveryClient, trait

SHARES = {("local", "epochs"), ("local", "solver")}  # keys whose tables are one value


@dataclass(frozen=True)
class Plan:
    """What a file says: an experiment's table, under [variants.NAME] changes to it, and a remark for its readers."""

    table: Table
    variants: dict[str, Table] = field(default_factory=dict)
    remark: str = ""

    def experiment(self, variant: str | None = None, *, changes: Table | None = None) -> Experiment:
        """Return the experiment, or a variant of it: one of the file's, or an algorithm at its defaults.

        Changes are keys such as "local.learning_rate"; they come last, so they hold for every variant.
        """
        table = copy.deepcopy(self.table)
        if variant in self.variants:
            _merge(table, {"label": variant, **self.variants[variant]})
        elif variant is not None and (variant in ALGORITHMS or ":" in variant):
            _apply(table, {"algorithm.name": variant})
        elif variant is not None:
            known = [*self.variants, *(name for name in ALGORITHMS if name not in self.variants)]
            remedy = near_names(variant, known, what="variants and algorithms")
            raise InputError(f"there is no variant or algorithm {variant!r}; {remedy}")
        _apply(table, changes or {})
        return Experiment(**table)

    def experiments(self, names: Sequence[str] | None = None, *, changes: Table | None = None) -> list[Experiment]:
        """Return the experiments of these variants or algorithms; of all variants, or if it has none all algorithms."""
        known = self.variants or [n for n, kind in ALGORITHMS.items() if not trait(kind(), NeedsEveryClient)]
        wanted = list(known if names is None else names)
        changed = [key for key in changes or {} if key.partition(".")[0] == "algorithm"]
        try:
            experiments = [self.experiment(name, changes=changes) for name in wanted]
        except InputError as error:
            if len(wanted) > 1 and changed and str(error).startswith("in [algorithm]"):
                raise InputError(
                    f"{error}; a change is for all methods, so write a key of one alone below [variants.NAME] in a file"
                ) from error
            raise
        unnamed = [(name, one.replace(label=None)) for name, one in zip(wanted, experiments, strict=True) if changed]
        for (name, one), (other, same) in combinations(unnamed, 2):
            if one == same:
                raise InputError(f"with {changed[0]} changed for all, {name} and {other} are the same; leave one out")
        return experiments


def preset_names() -> list[str]:
    """Return the names of the presets."""
    files = (resources.files("fedadmm.config") / "presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def preset_descriptions() -> dict[str, str]:
    """Return what each preset is: the first line of its file, which is a comment."""
    return {name: _preset_text(name).partition("\n")[0].lstrip("# ") for name in preset_names()}


def _preset_text(name: str) -> str:
    return (resources.files("fedadmm.config") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def load_plan(name_or_path: str, *, elsewhere: Iterable[str] = ()) -> Plan:
    """Return the plan in a TOML file, or a preset's; names from elsewhere are hints for a name that is not known."""
    if name_or_path in preset_names():
        return _plan(_preset_text(name_or_path), where=f"preset {name_or_path}")
    path = Path(name_or_path)
    if not path.exists():
        files = [str(file) for file in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        remedy = near_names(name_or_path, preset_names(), elsewhere=[*elsewhere, *files])
        if (file := path.with_suffix(".toml")).is_file():
            remedy = f"did you mean {file}?"
        raise InputError(f"there is no file or preset {name_or_path!r}; {remedy}")
    if path.is_dir():
        if (file := path / "experiment.toml").is_file():
            raise InputError(f"{path} is a run folder; give {file}")
        raise InputError(f"{path} is a folder; give a TOML file")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}; give a TOML file") from error
    if not text.strip():
        raise InputError(f"{path} is empty; write an experiment, or copy one from a run folder's experiment.toml")
    look_for_modules_in(path.resolve().parent)
    return _plan(text, where=str(path))


def parse_changes(assignments: list[str]) -> Table:
    """Return {"a.b": value} for assignments such as "a.b=value"; a value is TOML, or else a plain string."""
    changes: Table = {}
    for assignment in assignments:
        key, separator, text = (part.strip() for part in assignment.partition("="))
        if not separator or not all(key.split(".")):
            raise InputError(f"cannot set {assignment!r}; write key=value, such as local.learning_rate=0.1")
        value = _value_in(text, key=key)
        if repr(changes.setdefault(key, value)) != repr(value):  # nan is not equal to itself
            raise InputError(f"cannot set {key} to {changes[key]!r} and to {value!r}; give it once")
    return changes


def _value_in(text: str, *, key: str) -> Any:
    try:
        return parse_toml(f"value = {text}", where=f"the value of {key}")["value"]
    except InputError as error:
        if isinstance(error.__cause__, tomllib.TOMLDecodeError):
            return text
        raise


def _plan(text: str, *, where: str) -> Plan:
    table = parse_toml(text, where=where)
    variants = table.pop("variants", {})
    if not isinstance(variants, dict) or not all(isinstance(value, dict) for value in variants.values()):
        raise InputError(f"{where} has variants={variants!r}; write them as tables, [variants.NAME]")
    return Plan(table, variants, str(table.pop("remark", "")))


def _merge(table: Table, changes: Table, *, path: tuple[str, ...] = ()) -> None:
    """Put the values of a variant in the place of a table's; a table that is one value takes the place of it whole."""
    if path[:1] == ("algorithm",) and changes.get("name", table.get("name")) != table.get("name"):
        table.clear()  # the keys of one algorithm mean nothing to another
    for key, value in changes.items():
        inner, here = table.get(key), (*path, key)
        is_one_value = isinstance(value, dict) and ({"schedule", "distribution"} & value.keys() or here in SHARES)
        if isinstance(value, dict) and isinstance(inner, dict) and not is_one_value:
            _merge(inner, value, path=here)
        else:
            table[key] = copy.deepcopy(value)


def _apply(table: Table, changes: Table) -> None:
    # A table before its keys, and an algorithm's name before its other keys: the order of the changes means nothing.
    for key in sorted(changes, key=lambda key: (key.count("."), not key.endswith(".name"))):
        value = changes[key]
        *path, last = key.split(".")
        inner = table
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InputError(f"cannot set {key!r}: {part} is {inner!r}, which has no keys; set {part} alone")
        if path[:1] == ["algorithm"] and last == "name" and inner.get("name") != value:
            inner.clear()  # the keys of one algorithm mean nothing to another
        inner[last] = value
