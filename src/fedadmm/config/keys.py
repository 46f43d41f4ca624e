"""Every key of an experiment with its meaning, type, default and an example, read off the classes and their docstrings.

A docstring has an entry for each field, which begins with an example in TOML: `batch_size = 32: a number, or "full".`
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import tomli_w
from pydantic.fields import FieldInfo

from fedadmm.algorithms import ALGORITHMS
from fedadmm.config.algorithm_table import algorithm_to_table
from fedadmm.config.experiment import Experiment
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.columns import Columns
from fedadmm.core.errors import InputError, near_names
from fedadmm.core.per_client import Distribution, Stragglers
from fedadmm.core.schedules import SCHEDULES, Schedule, to_plain
from fedadmm.core.settings import Settings, entries_of

WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): ""}


class Key(NamedTuple):
    """A key of a table."""

    name: str
    type: str
    default: str  # in TOML; "" if it is left out, "required" if it must be given
    example: str
    meaning: str


@dataclass(frozen=True)
class KeyTable:
    """A table of an experiment's file: what it is, and its keys."""

    name: str  # as in the file, such as local or clock.availability; "" for the keys above all tables
    about: str
    keys: tuple[Key, ...]


def tables() -> Iterator[KeyTable]:
    """Yield the tables of an experiment: its own keys, those of its tables, and those of every algorithm."""
    yield from _of_settings("", Experiment)
    for name, kind in ALGORITHMS.items():
        yield _of_algorithm(f"algorithm {name}", kind)
    for name, settings in (("hugging_face", Columns), ("distribution", Distribution), ("stragglers", Stragglers)):
        yield from _of_settings(name, settings)


def tables_named(name: str) -> list[KeyTable]:
    """Return what goes by a name: a table, an algorithm, or a key such as local.epochs, with its table.

    A key of [algorithm], such as algorithm.rho, is a key of several.
    """
    name = "algorithm" if name == "algorithm.name" else name
    known = {table.name.removeprefix("algorithm "): table for table in tables()}
    if name in known:
        return [known[name]]
    owners: dict[str, list[KeyTable]] = {}
    for table in known.values():
        for key in table.keys:
            for full in _names_of(table, key):
                owners.setdefault(full, []).append(replace(table, keys=(key,)))
    if name in owners:
        return owners[name]
    same = sorted(full for full in owners if full.rpartition(".")[2] == name)
    near = near_names(name, filter(None, known), elsewhere=owners, what="tables")
    remedy = f"did you mean {' or '.join(same[:3])}?" if same else near
    raise InputError(f"there is no table or key {name!r}; {remedy}")


def _names_of(table: KeyTable, key: Key) -> set[str]:
    place, _, algorithm = table.name.partition(" ")
    return {f"{one}.{key.name}".lstrip(".") for one in filter(None, (place, algorithm))} or {key.name}


def _of_settings(name: str, kind: type[Settings], given: Settings | None = None) -> Iterator[KeyTable]:
    """Yield the table of some settings, and those in it; `given` are those of an experiment that says nothing."""
    entries, hints = entries_of(kind), get_type_hints(kind, include_extras=True)
    defaults = {key: _default_of(field) for key, field in kind.model_fields.items()} | dict(given or ())
    keys = [_key(key, hints[key], default, entries) for key, default in defaults.items()]
    yield KeyTable(name, _first_line(kind), tuple(keys))
    for key, default in defaults.items():
        for inner in filter(_is_table, (hints[key], *get_args(hints[key]))):
            yield from _of_settings(f"{name}.{key}".lstrip("."), inner, default)


def _is_table(part: Any) -> bool:
    """Return whether a type is a table of its own, and not one way to write a value."""
    return isinstance(part, type) and issubclass(part, Settings) and not hasattr(part, "draw")


def _of_algorithm(name: str, kind: type[Algorithm[Any, Any, Any, Any]]) -> KeyTable:
    entries, hints = entries_of(kind), get_type_hints(kind, include_extras=True)
    keys = [_key(field.name, hints[field.name], field.default, entries) for field in fields(kind)]
    return KeyTable(name, _first_line(kind), tuple(keys))


def _key(name: str, hint: Any, default: Any, entries: dict[str, tuple[str, str]]) -> Key:
    example, meaning = entries.get(name, ("", ""))
    return Key(name, type_text(hint), "required" if default is ... else _toml(default), example, meaning)


def _default_of(field: FieldInfo) -> Any:
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def _toml(value: Any) -> str:
    if isinstance(value, Settings) or value is None or value == {}:
        return ""
    if isinstance(value, Algorithm):
        return _toml(algorithm_to_table(value))
    if isinstance(plain := to_plain(value), dict):
        inner = ", ".join(f"{key} = {_toml(each)}" for key, each in plain.items() if each is not None)
        return f"{{{inner}}}"
    return tomli_w.dumps({"value": plain}).strip().removeprefix("value = ")


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0]


def type_text(hint: Any) -> str:
    """Return a type in words, such as `number from 0 to 1 or schedule`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        words = [word for note in parts[1:] if (word := getattr(getattr(note, "func", None), "words", None))]
        return words[0].removeprefix("a ") if words else type_text(parts[0])
    if origin is Literal:
        return " or ".join(f'"{value}"' for value in parts)
    if origin in (Union, UnionType):
        kinds = [part for part in parts if part not in get_args(Schedule)]
        texts = [text for part in kinds if (text := type_text(part))]
        return " or ".join(dict.fromkeys([*texts, *(["schedule"] if len(kinds) < len(parts) else [])]))
    if origin is tuple:
        return "list"
    if origin is dict or _is_table(hint):
        return "table"
    if origin is Algorithm:
        return "algorithm"
    return WORDS[hint] if hint in WORDS else hint.__name__.removeprefix("Falling").lower()


def markdown() -> str:
    """Return all tables for docs/KEYS.md."""
    parts = []
    for table in tables():
        title = f"[{table.name}]" if table.name else "Above all tables"
        rows = ["| key | type | default | example | meaning |", "| --- | --- | --- | --- | --- |"]
        for key in table.keys:
            example = f"{key.name} = {key.example}" if key.example else ""
            cells = [f"`{key.name}`", key.type, _code(key.default), _code(example), key.meaning.replace("*", "\\*")]
            rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        parts.append("\n".join([f"## {title}\n\n{table.about}\n", *(rows if table.keys else ["It has no keys."])]))
    schedules = ["## Schedules", "A number that may change over rounds."]
    for name, schedule in SCHEDULES.items():
        numbers = ", ".join(f"{field.name} = {20 if field.type is int else 0.1}" for field in fields(schedule))
        schedules.append(f'`{{schedule = "{name}", {numbers}}}`: {_first_line(schedule)}')
    return "\n\n".join([*parts, *schedules]) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text and text != "required" else text
