"""Quadratics that clients solve as an experiment's [local] says, to the tolerance that it asks for."""

import torch

from fedadmm.core.algorithm import Solution, Vector
from fedadmm.core.round import Assignment, Buffers, ClientStats
from fedadmm.studies.theory.quadratics import QuadraticProblem, Quadratics
from fedadmm.training.local import LocalTraining
from fedadmm.training.solvers import Budget, Lagrangian, minimise, solver_named


class SolvedQuadratics(Quadratics):
    """A federation of quadratics; SGD is gradient descent here, as there are no examples to draw from.

    A visit has `local.max_steps` steps, or as many as its epochs.
    """

    def __init__(self, hessians: torch.Tensor, targets: torch.Tensor, *, local: LocalTraining, seed: int = 0) -> None:
        super().__init__(hessians, targets, tolerance=self._asked_for, seed=seed)
        local.check(len(targets))
        self.local = local

    def problem(self, assignment: Assignment, *, buffers: Buffers) -> "SolvedProblem":
        """Return a client's problem in a round."""
        return SolvedProblem(self, assignment, buffers)

    def _asked_for(self, client: int, round: int) -> float:
        """Return the epsilon_i that a client is asked for in a round, 0 if none is."""
        return self.local.tolerance_at(round, client=client, seed=self.seed) or 0.0


class SolvedProblem(QuadraticProblem):
    """One client's quadratic in one round."""

    def __init__(self, task: SolvedQuadratics, assignment: Assignment, buffers: Buffers) -> None:
        super().__init__(task, assignment, buffers)
        local, client = task.local, assignment.client
        self.num_steps = local.max_steps or assignment.epochs
        self.learning_rate = local.learning_rate_at(assignment.round)
        self._budget = Budget(self.num_steps, task.tolerance(client, assignment.round), self.learning_rate)
        name = local.solver_of(client, seed=task.seed)
        self._solver = solver_named("gd" if name == "sgd" else name)
        self._epsilon: float | None = None

    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: float = 0.0, centre: Vector | None = None
    ) -> Solution:
        """Minimise f(w) + <dual, w> + rho/2 |w - centre|^2 from `start`, until it is accurate or the budget ends."""
        objective = Lagrangian(self._f, dual=dual, rho=rho, centre=centre, budget=self._budget)
        point = minimise(self._solver, objective, start=start, budget=self._budget)
        self._epsilon = point.epsilon
        return Solution(point.w, max(1, objective.calls - 1))

    def stats(self) -> ClientStats:
        """Return what was done; a step is a gradient here."""
        return super().stats()._replace(epsilon=self._epsilon)

    def _f(self, w: Vector) -> tuple[float, Vector]:
        gradient = self.gradient(w)
        return float((w - self._task.targets[self.client]) @ gradient) / 2, gradient
