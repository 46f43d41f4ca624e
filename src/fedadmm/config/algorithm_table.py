"""An algorithm as a table of an experiment, {name = "fedadmm", rho = 0.01}, and back."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.algorithm import Algorithm, AnyAlgorithm
from fedadmm.core.errors import OLD_WORDS, InputError, import_named, near_names, new_name
from fedadmm.core.schedules import rate_from, to_plain

DEFAULT = "fast_fedadmm"  # the method of an experiment that names none


def algorithm_from_table(table: dict[str, Any]) -> AnyAlgorithm:
    """Return the algorithm that {name = "fedadmm", rho = 0.01, ...} describes."""
    arguments = dict(table)
    name = arguments.pop("name", None)
    if isinstance(name, str) and ":" in name:
        kind = import_named(name, what="algorithm")
        if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
            raise InputError(f"{name} is not an algorithm; name a class derived from fedadmm.Algorithm")
    elif isinstance(name, str) and name in ALGORITHMS:
        kind = ALGORITHMS[name]
    else:
        near = near_names(str(name), ALGORITHMS)
        remedy = f'use one of {", ".join(ALGORITHMS)}, or "package.module:Class" for one of your own'
        if near.endswith("?"):
            remedy = f"{near} `fedadmm list` has all of them"
        told = new_name(str(name), ALGORITHMS) or f"name={name!r} is unknown; {_in_file(str(name)) or remedy}"
        raise InputError(told)
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


def _in_file(name: str) -> str | None:
    """Return the remedy for the name of a file where that of a class in it was wanted, None if there is none."""
    file = Path(f"{name.removesuffix('.py')}.py")
    try:
        classes = re.findall(r"^class (\w+)", file.read_text(errors="replace"), re.MULTILINE)
    except (OSError, ValueError):  # there is none, or it is no name for a file
        return None
    near = " or ".join(f'"{".".join(file.with_suffix("").parts)}:{found}"' for found in classes)
    return f"{file} is a file, and an algorithm is a class in it: did you mean {near}?" if near else None


def algorithm_to_table(algorithm: AnyAlgorithm) -> dict[str, Any]:
    """Return the table that describes an algorithm."""
    kind = type(algorithm)
    names = [name for name, known in ALGORITHMS.items() if known is kind]
    values = {field.name: getattr(algorithm, field.name) for field in fields(algorithm)}
    plain = {key: algorithm_to_table(v) if isinstance(v, Algorithm) else to_plain(v) for key, v in values.items()}
    return {"name": names[0] if names else f"{kind.__module__}:{kind.__qualname__}", **plain}


def with_seed(algorithm: AnyAlgorithm, seed: int) -> AnyAlgorithm:
    """Return an algorithm whose own `seed`, where it has one that is None, is the run's; and so one inside it."""
    inner = getattr(algorithm, "inner", None)
    if isinstance(inner, Algorithm):
        algorithm = replace(algorithm, inner=with_seed(inner, seed))
    return replace(algorithm, seed=seed) if getattr(algorithm, "seed", seed) is None else algorithm


def hashed_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return an algorithm's table with the words of 0.1.0 and no whole numbers: 1 and 1.0 are the same."""
    return {OLD_WORDS["algorithm"].get(key, key): _hashed(value) for key, value in table.items()}


def _hashed(value: Any) -> Any:
    if isinstance(value, dict) and "name" in value:
        return hashed_table(value)
    if isinstance(value, str):
        return OLD_WORDS["algorithm"].get(value, value)
    return float(value) if type(value) is int else value


def _algorithm_from(value: Any) -> Any:
    if isinstance(value, str):
        raise InputError(f'algorithm={value!r} is not a table; write algorithm.name = "{value}"')
    return algorithm_from_table({"name": DEFAULT} | value) if isinstance(value, dict) else value


AlgorithmSettings = Annotated[AnyAlgorithm, BeforeValidator(_algorithm_from), PlainSerializer(algorithm_to_table)]
