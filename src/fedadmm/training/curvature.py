"""Hessians of a client's objective: dense where there are few parameters, conjugate gradients where there are many."""

from collections.abc import Callable, Iterator

import torch

from fedadmm.core.algorithm import Vector
from fedadmm.data.examples import Examples
from fedadmm.training import derivatives
from fedadmm.training.evaluation import Loss, batches
from fedadmm.training.flat import FlatModel

DENSE_UP_TO = 200  # parameters whose Hessian is made in full
TOLERANCE = 1e-12  # of the residual of conjugate gradients, relative


class Curvature:
    """What a problem over examples knows of its Hessian; a product with it counts as a gradient of each example."""

    _model: FlatModel
    _examples: Examples
    _loss: Loss
    _l2: float
    _evaluations: int
    num_examples: int

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Return the Hessian of f at w times v."""
        self._evaluations += self.num_examples
        return derivatives.hessian_product(self._model, self._parts(w), direction=v, l2=self._l2)

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        """Return x with (H + rho I) x = v, for the Hessian H of f at w."""
        if len(w) > DENSE_UP_TO:
            return conjugate_gradients(lambda x: self.hessian_product(w, x) + rho * x, v)
        hessian = self._hessian(w)
        hessian.diagonal().add_(rho)
        return torch.linalg.solve(hessian, v)

    def _hessian(self, w: Vector) -> torch.Tensor:
        parameters, identity = self._model.parameters, torch.eye(len(w), dtype=w.dtype, device=w.device)
        hessian = self._l2 * identity
        self._evaluations += len(w) * self.num_examples
        for part in self._parts(w):
            slopes = derivatives.flat(torch.autograd.grad(part, parameters, create_graph=True))
            rows = torch.autograd.grad(slopes, parameters, identity, is_grads_batched=True)
            hessian.add_(torch.cat([row.reshape(len(w), -1) for row in rows], dim=1))
        return hessian

    def _parts(self, w: Vector) -> Iterator[torch.Tensor]:
        """Yield the share of each chunk of the examples in the mean loss at w."""
        self._model.load(w)
        for inputs, targets in batches(self._examples):
            yield self._loss(self._model.module(inputs), targets) * (len(targets) / self.num_examples)


def conjugate_gradients(product: Callable[[Vector], Vector], v: Vector) -> Vector:
    """Return x with product(x) = v, for a symmetric and positive definite product."""
    x, residual = torch.zeros_like(v), v
    direction, size = v, v @ v
    enough = TOLERANCE**2 * size
    for _ in range(10 * len(v)):
        if not size > enough:
            break
        ahead = product(direction)
        length = size / (direction @ ahead)
        x, residual = x + length * direction, residual - length * ahead
        before, size = size, residual @ residual
        direction = residual + size / before * direction
    return x
