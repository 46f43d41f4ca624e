"""An algorithm as a table of an experiment file, such as {name = "fedadmm", rho = 0.01}, and back."""

from dataclasses import fields
from typing import Any

from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.algorithm import Algorithm, AnyAlgorithm
from fedadmm.core.errors import OLD_WORDS, InputError, import_named, new_name
from fedadmm.core.schedules import rate_from, to_plain


def algorithm_from_table(table: dict[str, Any]) -> AnyAlgorithm:
    """Return the algorithm that {name = "fedadmm", rho = 0.01, ...} describes."""
    arguments = dict(table)
    name = arguments.pop("name", None)
    if isinstance(name, str) and ":" in name:
        kind = import_named(name, what="algorithm")
        if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
            raise InputError(f"{name} is not an algorithm; name a class derived from fedadmm.Algorithm")
    elif name in ALGORITHMS:
        kind = ALGORITHMS[name]
    else:
        known = f"name={name!r} is unknown; use one of {', '.join(ALGORITHMS)}"
        raise InputError(new_name(str(name), ALGORITHMS) or known)
    if missing := getattr(kind, "__abstractmethods__", None):
        raise InputError(f"{name} does not define {', '.join(sorted(missing))}; an algorithm has these methods")
    defaults = {field.name: field.default for field in fields(kind)}
    for key, value in arguments.items():
        if key not in defaults:
            known = f"unknown key {key!r}; {name} has {', '.join(defaults) or 'no keys but its name'}"
            raise InputError(new_name(key, defaults) or known)
        nested = isinstance(value, dict) and isinstance(defaults[key], Algorithm)
        arguments[key] = algorithm_from_table(value) if nested else rate_from(key, value)
    return kind(**arguments)


def algorithm_to_table(algorithm: AnyAlgorithm) -> dict[str, Any]:
    """Return the table that describes an algorithm."""
    kind = type(algorithm)
    names = [name for name, known in ALGORITHMS.items() if known is kind]
    values = {field.name: _plain(getattr(algorithm, field.name)) for field in fields(algorithm)}
    return {"name": names[0] if names else f"{kind.__module__}:{kind.__qualname__}", **values}


def _plain(value: Any) -> Any:
    return algorithm_to_table(value) if isinstance(value, Algorithm) else to_plain(value)


def hashed_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return an algorithm's table with the words of 0.1.0 and no whole numbers: 1 and 1.0 are the same."""
    return {OLD_WORDS["algorithm"].get(key, key): _hashed(value) for key, value in table.items()}


def _hashed(value: Any) -> Any:
    if isinstance(value, dict) and "name" in value:
        return hashed_table(value)
    if isinstance(value, str):
        return OLD_WORDS["algorithm"].get(value, value)
    return float(value) if type(value) is int else value
