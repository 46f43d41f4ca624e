"""A rho that nobody was told: how stiff a client's problem is to the client's own solver.

In the first round no dual is there yet, and a solver answers the gradient g of f at theta by going to w. What held it
back is |g| / |w - theta|: rho itself, and beside it the curvature if the solve is exact, or about
1 / (learning rate x steps) if it is a few gradient steps. What is left without rho is the client's stiffness.
"""

from typing import Any

import torch

from fedadmm.core.algorithm import LocalProblem, Vector

Scalar = Any  # a number, or [K, 1] for a stack of K clients
SMALLEST = 1e-30


def first_guess(problem: LocalProblem) -> Scalar:
    """Return the rho of a client that knows nothing yet: 1 / (learning rate x local steps)."""
    return 1 / (problem.learning_rate * problem.num_steps)


def squared(vector: Vector) -> Scalar:
    """Return the squared length of a vector, or of each in a stack."""
    return _scalar(vector.square().sum(dim=-1, keepdim=True))


def is_first(y: Vector) -> Scalar:
    """Return 1 for a client on its first visit, whose dual is 0, and 0 for the others."""
    return _scalar((~y.any(dim=-1, keepdim=True)).to(y.dtype))


def stiffness(problem: LocalProblem, *, theta: Vector, w: Vector, y: Vector, rho: Scalar) -> Scalar:
    """Return how much held a client back from following its gradient and its dual, beside rho."""
    force, way = problem.gradient(theta) + y, w - theta
    held = force.norm(dim=-1, keepdim=True) / way.norm(dim=-1, keepdim=True).clamp(min=SMALLEST)
    return _scalar((held - rho).clamp(min=0.0))


def _scalar(column: torch.Tensor) -> Scalar:
    return column if column.ndim > 1 else float(column)
