"""Which solver a client has and which optimizer takes its steps, as an experiment names them."""

from collections.abc import Callable, Set
from itertools import accumulate
from typing import Any, Self

import numpy as np
from pydantic import ConfigDict, model_validator

from fedadmm.core.errors import InputError, import_named
from fedadmm.core.settings import Settings

NAMES = ("sgd", "gd", "lbfgs")
OPTIMIZERS = ("sgd", "adam", "adamw")


class Shares(Settings):
    """The probability with which a client has a solver; which it has is drawn once. Further keys are functions."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float]

    sgd: float = 0.0
    gd: float = 0.0
    lbfgs: float = 0.0

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        shares = list(self.by_name.values())
        if not (min(shares) >= 0 and abs(sum(shares) - 1) < 1e-9):
            raise InputError(f"the shares of solvers are {shares}; use numbers from 0 on whose sum is 1")
        return self

    @property
    def by_name(self) -> dict[str, float]:
        """The share of each solver: of ours, then of the user's own."""
        return {name: getattr(self, name) for name in NAMES} | dict(sorted(self.__pydantic_extra__.items()))

    def draw(self, generator: np.random.Generator) -> str:
        """Return the name of a client's solver."""
        place, names = generator.random(), list(self.by_name)
        bounds = accumulate(self.by_name[name] for name in names[:-1])
        return names[sum(place >= bound for bound in bounds)]


SolverName = str | tuple[str, ...] | Shares


def check_solver(value: Any) -> Any:
    """Return the solver of all clients, the list of each one's, or the shares; None for SGD alone."""
    for name in value if isinstance(value, dict | list | tuple) else (value,):
        if callable(name):
            function = getattr(name, "__qualname__", repr(name))
            raise InputError(f'solver={function} is a function; give its name, as "{_path_of(name)[0]}"')
        if isinstance(name, str) and name not in NAMES and ":" not in name:
            raise InputError(f'solver={name!r} is unknown; use one of {", ".join(NAMES)}, or "package.module:function"')
    if isinstance(value, dict):
        return Shares(**value)
    return None if value == "sgd" else tuple(value) if isinstance(value, list) else value


def names_of(solver: SolverName | None) -> Set[str]:
    """Return the names of all solvers that clients may have."""
    if isinstance(solver, Shares):
        return {name for name, share in solver.by_name.items() if share}
    return set(solver) if isinstance(solver, tuple) else {solver or "sgd"}


def check_optimizer_name(value: Any) -> Any:
    """Return the name of an optimizer, also of a class or a function that can be imported; None for SGD."""
    if callable(value):
        name, unnamed = _path_of(value)
        if unnamed:
            raise InputError(f'optimizer={value.__qualname__} cannot be imported; put it in a module, as "{name}"')
        value = name
    if isinstance(value, str) and value not in OPTIMIZERS and ":" not in value:
        raise InputError(
            f'optimizer={value!r} is unknown; use one of {", ".join(OPTIMIZERS)}, or "package.module:Class"'
        )
    return None if value == "sgd" else value


def _path_of(function: Any) -> tuple[str, bool]:
    """Return how an experiment names a function, and whether it cannot: then an example takes its place."""
    module, name = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", repr(function))
    unnamed = module == "__main__" or "<" in name
    return "package.module:function" if unnamed else f"{module}:{name}", unnamed


def own_function(name: str, *, what: str, form: str) -> Callable[..., Any]:
    """Return a function of the user's; refuse a name that leads nowhere, or not to a function."""
    function: Callable[..., Any] = import_named(name, what=what)
    if not callable(function):
        raise InputError(f'{what} "{name}" is of type {type(function).__name__}; name a function of {form}')
    return function


def own_solver(name: str) -> Callable[..., Any]:
    """Return the function of a user's own solver."""
    return own_function(name, what="solver", form="(objective, start, budget) that returns w")
