"""Quadratics whose local problems are solved to a given accuracy, no better: the errors of equation 6, made."""

from collections.abc import Callable
from typing import Any

import torch

from fedadmm.core.algorithm import Solution, Vector
from fedadmm.core.round import Assignment, Buffers
from fedadmm.core.seeds import stream
from fedadmm.studies.theory.quadratics import QuadraticProblem, Quadratics

Accuracy = Callable[[int, int], float]  # of (client, round, from 1): epsilon_i


class InexactQuadratics(Quadratics):
    """Every solve ends where |grad L_i|^2 is epsilon_i, in a random direction from the solution."""

    def __init__(self, hessians: torch.Tensor, targets: torch.Tensor, *, accuracy: Accuracy, seed: int) -> None:
        super().__init__(hessians, targets)
        self._accuracy, self.seed = accuracy, seed

    def accuracy(self, client: int, round: int) -> float:
        """Return epsilon_i."""
        return self._accuracy(client, round)

    def problem(self, assignment: Assignment, *, buffers: Buffers) -> "_InexactProblem":
        """Return a client's problem in a round."""
        return _InexactProblem(self, assignment, buffers)


class _InexactProblem(QuadraticProblem):
    def __init__(self, task: InexactQuadratics, assignment: Assignment, buffers: Buffers) -> None:
        super().__init__(task, assignment, buffers)
        self._inexact = task

    def solve(self, *, start: Vector, rho: float = 0.0, **terms: Any) -> Solution:
        """Return a point at which the gradient of the local problem is an error of the norm that was asked for."""
        task, epsilon = self._inexact, self._inexact.accuracy(self.client, self.round)
        solution = super().solve(start=start, rho=rho, **terms)
        if epsilon == 0:
            return solution
        drawn = stream(task.seed, "error", self.round, self.client).standard_normal(len(start))
        error = torch.from_numpy(drawn)
        away = task.inverse(self.client, rho) @ (error * (epsilon**0.5 / error.norm()))
        return solution._replace(w=solution.w + away)
