"""A client's objective for solvers that take gradients over all of its examples."""

from typing import Any

from fedadmm.core.algorithm import Solution, Vector
from fedadmm.core.round import Assignment
from fedadmm.training.flat import squared_norm
from fedadmm.training.sgd import SGDProblem
from fedadmm.training.solvers import Budget, Lagrangian, Solver, minimise


class FullBatchProblem(SGDProblem):
    """One client's objective in one round; an epoch is one step, and the gradient at the start comes on top."""

    def __init__(self, *network: Any, solver: Solver, **settings: Any) -> None:
        super().__init__(*network, **settings)
        self._solver = solver

    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: float = 0.0, centre: Vector | None = None
    ) -> Solution:
        """Minimise f(w) + <dual, w> + rho/2 |w - centre|^2 from `start`, until it is accurate or the budget ends."""
        budget = Budget(self.num_steps, self._tolerance or 0.0, self.learning_rate)
        objective = Lagrangian(self._f, dual=dual, rho=rho, centre=centre, budget=budget)
        point = minimise(self._solver, objective, start=start, budget=budget)
        self._epsilon = point.epsilon
        self._steps += objective.calls - 1
        return Solution(point.w, max(1, objective.calls - 1))

    def _f(self, w: Vector) -> tuple[float, Vector]:
        """Return f, of which weight decay is a part, and its gradient; dropout has the same mask in every call."""
        self._seed_dropout()
        decay = self._local.weight_decay + self._l2
        loss, gradient = self._objective.loss_and_gradient(w, decay=decay)
        self._loss_sum += loss
        self._num_losses += 1
        return (loss + decay / 2 * squared_norm(w) if decay else loss), gradient

    def _wanted_batch(self) -> int:
        return self.num_examples

    def _steps_within(self, assignment: Assignment, *, max_steps: int | None) -> int:
        steps = super()._steps_within(assignment, max_steps=max_steps)
        if assignment.gradients is None:
            return steps
        return min(steps, max(1, assignment.gradients // self.num_examples - 1))
