"""A rho that nobody was told: how stiff a client's problem is to the client's own solver.

In the first round no dual is there yet, and a solver answers the gradient g of f at theta by going to w. What held it
back is |g| / |w - theta|: rho itself, and beside it the curvature if the solve is exact, or about
1 / (learning rate x steps) if it is a few gradient steps. What is left without rho is the client's stiffness.
"""

from typing import NamedTuple

from fedadmm.core.algorithm import LocalProblem, Scalar, Vector

SMALLEST = 1e-30
LOST_OF_GRADIENT, LOST_OF_THETA = 64, 4  # last digits that sums and steps cost


class Download(NamedTuple):
    """What a client needs of a server that measures rho."""

    theta: Vector
    rho: float  # 0 until a stiffness above 0 is measured: a rho of 0 would be no penalty at all

    @property
    def is_measured(self) -> bool:
        return self.rho != 0

    def rho_for(self, problem: LocalProblem) -> Scalar:
        """Return rho; until it is measured, a first guess: 1 / (learning rate x local steps)."""
        return self.rho if self.is_measured else 1 / (problem.learning_rate * problem.num_steps)


def squared(vector: Vector) -> Scalar:
    """Return the squared length of a vector, or of each in a stack."""
    return _scalar(vector.square().sum(dim=-1, keepdim=True))


def stiffness(problem: LocalProblem, *, theta: Vector, w: Vector, y: Vector, rho: Scalar) -> Scalar:
    """Return how much held a client back from following its gradient and its dual, beside rho; 0 if nothing is left.

    Where local steps follow clipped gradients, so does this. What is no more than rounding is nothing: all of it where
    a client stayed where it was, or went less far than the last digits of theta.
    """
    import torch  # methods are named, and described, without it

    gradient, way = problem.gradient(theta), _length(w - theta).clamp(min=SMALLEST)
    if problem.clip is not None:
        gradient = gradient * (problem.clip / _length(gradient)).clamp(max=1.0)
    held = _length(gradient + y) / way
    rounding = torch.finfo(theta.dtype).eps * (LOST_OF_GRADIENT + LOST_OF_THETA * _length(theta) / way)
    return _scalar(torch.where(held - rho > rounding * held, held - rho, 0.0))


def _length(vector: Vector) -> Vector:
    return vector.norm(dim=-1, keepdim=True)


def _scalar(column: Vector) -> Scalar:
    return column if column.ndim > 1 else float(column)
