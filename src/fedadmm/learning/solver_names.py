"""Which client runs which solver."""

from collections.abc import Set
from typing import Any, Self

from pydantic import model_validator

from fedadmm.core.errors import InputError
from fedadmm.core.seeds import stream
from fedadmm.core.settings import Settings

NAMES = ("sgd", "gd", "lbfgs")


class Shares(Settings):
    """The probability with which a client has a solver; which it has is drawn once."""

    sgd: float = 0.0
    gd: float = 0.0
    lbfgs: float = 0.0

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        shares = [getattr(self, name) for name in NAMES]
        if not (min(shares) >= 0 and abs(sum(shares) - 1) < 1e-9):
            raise InputError(f"the shares of solvers are {shares}; use numbers from 0 on whose sum is 1")
        return self


SolverName = str | tuple[str, ...] | Shares


def check_solver(value: Any) -> Any:
    """Return the solver of all clients, the list of each one's, or the shares; None for SGD alone."""
    if isinstance(value, dict):
        return Shares(**value)
    for name in value if isinstance(value, list | tuple) else (value,):
        if isinstance(name, str) and name not in NAMES and ":" not in name:
            raise InputError(
                f'solver={name!r} is unknown; use one of {", ".join(NAMES)}, or "package.module:function"'
            )
    return None if value == "sgd" else tuple(value) if isinstance(value, list) else value


def names_of(solver: SolverName | None) -> Set[str]:
    """Return the names of all solvers that clients may have."""
    if isinstance(solver, Shares):
        return {name for name in NAMES if getattr(solver, name)}
    return set(solver) if isinstance(solver, tuple) else {solver or "sgd"}


def solver_of(solver: SolverName | None, *, client: int, seed: int) -> str:
    """Return the name of a client's solver."""
    if isinstance(solver, Shares):
        place = stream(seed, "solver", client).random()
        bounds = (solver.sgd, solver.sgd + solver.gd)
        return NAMES[sum(place >= bound for bound in bounds)]
    return solver[client] if isinstance(solver, tuple) else solver or "sgd"
