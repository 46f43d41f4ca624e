"""Local solvers beside SGD, for L(w) = f(w) + <dual, w> + rho/2 |w - centre|^2 over all of a client's examples.

A solver is a function `solver(objective, start, budget)` that returns w; a user's own has the same form. A call
`objective(w)` returns the value and the gradient of L at w, and is a step. The objective ends the solve by itself: at
the first point that is accurate enough, or when the budget is over, at the point of least value.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError, calling, new_name
from fedadmm.training.choices import own_solver
from fedadmm.training.flat import squared_norm

MEMORY = 20  # pairs of vectors that L-BFGS remembers
FALL = 1e-4  # of the gradient's norm, after which L-BFGS begins anew from where it is
PATIENCE = 10  # steps that L-BFGS takes without gain, among the errors of rounding

Function = Callable[[Vector], tuple[float, Vector]]  # of w: a value and a gradient


class Budget(NamedTuple):
    """What a solver may spend, and what it should reach."""

    steps: int  # gradients over all examples, after the one at the start
    tolerance: float  # the |grad L|^2 at which it may stop; 0 if none was asked for
    learning_rate: float

    @property
    def accuracy(self) -> NoReturn:
        """Refuse the name that `tolerance` had, which a user's solver may still use."""
        raise InputError(f"of a budget, {new_name('accuracy', self._fields)}")


class Point(NamedTuple):
    """A point at which the objective was evaluated."""

    w: Vector
    value: float
    gradient: Vector
    epsilon: float  # |gradient|^2


class DoneError(BaseException):
    """Ends a solve from within; a user's `except Exception` does not stop it."""


class Lagrangian:
    """The objective of a local solve, which counts what it is asked and ends the solve."""

    def __init__(self, f: Function, *, dual: Vector | None, rho: float, centre: Vector | None, budget: Budget) -> None:
        self._f, self._dual, self._rho, self._centre, self._budget = f, dual, rho, centre, budget
        self._last: Point | None = None
        self.best: Point | None = None
        self.calls = 0

    def __call__(self, w: Vector) -> tuple[float, Vector]:
        """Return value and gradient at w; raise DoneError where the solve ends."""
        if self.calls > self._budget.steps and not self._is_last(w):
            raise DoneError
        point = self.at(w)
        if point.epsilon <= self._budget.tolerance:
            self.best = point
            raise DoneError
        if self.best is None or point.value < self.best.value:
            self.best = point
        return point.value, point.gradient.clone()

    def at(self, w: Vector) -> Point:
        """Evaluate w, unless it was the last to be evaluated."""
        if self._last is None or not self._is_last(w):
            self.calls += 1
            value, gradient = self._f(w)
            if self._dual is not None:
                value, gradient = value + float(self._dual @ w), gradient + self._dual
            if self._rho:
                assert self._centre is not None
                away = w - self._centre
                value, gradient = value + self._rho / 2 * float(away @ away), gradient + self._rho * away
            self._last = Point(w.clone(), value, gradient, squared_norm(gradient))
        return self._last

    def _is_last(self, w: Vector) -> bool:
        return self._last is not None and torch.equal(self._last.w, w)


Solver = Callable[[Lagrangian, Vector, Budget], Vector]


def minimise(solver: Solver, objective: Lagrangian, *, start: Vector, budget: Budget) -> Point:
    """Return the point at which a solver ends, evaluated."""
    try:
        return objective.at(solver(objective, start.clone(), budget))
    except DoneError:
        assert objective.best is not None  # a budget has at least one step
        return objective.best


def gd(objective: Lagrangian, start: Vector, budget: Budget) -> Vector:
    """Run gradient descent."""
    w = start
    for _ in range(budget.steps):
        _, gradient = objective(w)
        w = w - budget.learning_rate * gradient
    return w


def lbfgs(objective: Lagrangian, start: Vector, budget: Budget) -> Vector:
    """Run torch's L-BFGS with a strong-Wolfe line search, down to the rounding of the gradient."""
    w, by_gradients = start, False
    while True:
        found, share = _lbfgs_around(w, objective, by_gradients=by_gradients)
        if by_gradients and share > 0.5:
            return found
        w, by_gradients = found, by_gradients or share > FALL


def _lbfgs_around(centre: Vector, objective: Lagrangian, *, by_gradients: bool) -> tuple[Vector, float]:
    """Return the point where the gradient has fallen enough, or L-BFGS stands still, and the share that is left of it.

    The unit of length is the gradient's norm: torch learns no curvature from vectors that are small in absolute terms.
    by_gradients: take the change of the value from the gradients, (g + g_0)(w - w_0) / 2, once rounding hides it.
    """
    first_value, first_gradient = objective(centre)
    unit = math.sqrt(squared_norm(first_gradient))
    if not (math.isfinite(unit) and math.isfinite(first_value)):
        return centre, 1.0
    x = torch.zeros_like(centre)  # w = centre + unit x
    search: dict[str, Any] = {"tolerance_grad": 0, "tolerance_change": 0, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS([x], max_iter=1, max_eval=26, history_size=MEMORY, **search)

    def closure() -> float:
        value, gradient = objective(centre + unit * x)
        if not math.isfinite(value):
            raise DoneError
        x.grad = gradient / unit
        if by_gradients:
            return float((gradient + first_gradient) @ x) / (2 * unit)
        return (value - first_value) / unit**2

    best, least, since = centre, unit, 0  # the least gradient, and how many steps ago that was
    while least > FALL * unit and since < PATIENCE:
        before = x.clone()
        optimizer.step(closure)
        w = centre + unit * x
        norm = math.sqrt(squared_norm(objective(w)[1]))
        if not by_gradients or norm < least:
            best, least, since = w, norm, 0
        else:
            since += 1
        if torch.equal(x, before):
            break
    return best, least / unit


SOLVERS: dict[str, Solver] = {"gd": gd, "lbfgs": lbfgs}


def solver_named(name: str) -> Solver:
    """Return a solver of ours, or the user's own as one whose mistakes are sentences."""
    if name in SOLVERS:
        return SOLVERS[name]
    function = own_solver(name)

    def solve(objective: Lagrangian, start: Vector, budget: Budget) -> Vector:
        with calling(f'solver "{name}"'):
            w = function(objective, start, budget)
        if not isinstance(w, torch.Tensor) or w.shape != start.shape:
            got = tuple(w.shape) if isinstance(w, torch.Tensor) else type(w).__name__
            raise InputError(f'solver "{name}" returned {got}; return a vector of shape {tuple(start.shape)}')
        return w.detach().to(start)

    return solve
