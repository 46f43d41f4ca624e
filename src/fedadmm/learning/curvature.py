"""Hessians of a client's objective: dense where there are few parameters, conjugate gradients where there are many."""

from collections.abc import Callable, Iterator

import torch

from fedadmm.core.algorithm import Vector
from fedadmm.data.examples import Examples
from fedadmm.learning.evaluation import Loss
from fedadmm.learning.flat import FlatModel

CHUNK = 1000  # examples that are in memory at once
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
        self._model.load(w)
        ahead, product = self._model.split(v), self._l2 * v
        self._evaluations += self.num_examples
        for slopes, share in self._slopes():
            along = sum((slope * part).sum() for slope, part in zip(slopes, ahead, strict=True))
            found = torch.autograd.grad(along, self._model.parameters)  # type: ignore[arg-type]
            product = product.add(torch.cat([part.reshape(-1) for part in found]), alpha=share)
        return product

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        """Return x with (H + rho I) x = v, for the Hessian H of f at w."""
        if len(w) > DENSE_UP_TO:
            return conjugate_gradients(lambda x: self.hessian_product(w, x) + rho * x, v)
        hessian = self._hessian(w)
        hessian.diagonal().add_(rho)
        return torch.linalg.solve(hessian, v)

    def _hessian(self, w: Vector) -> torch.Tensor:
        self._model.load(w)
        hessian = self._l2 * torch.eye(len(w), dtype=w.dtype, device=w.device)
        self._evaluations += len(w) * self.num_examples
        for slopes, share in self._slopes():
            flat = torch.cat([slope.reshape(-1) for slope in slopes])
            rows = torch.autograd.grad(
                flat, self._model.parameters, torch.eye(len(w)).to(flat), is_grads_batched=True
            )
            hessian.add_(torch.cat([part.reshape(len(w), -1) for part in rows], dim=1), alpha=share)
        return hessian

    def _slopes(self) -> Iterator[tuple[tuple[torch.Tensor, ...], float]]:
        """Yield the gradient of each chunk of the examples, to be differentiated again, and the chunk's share."""
        for inputs, targets in zip(*(part.split(CHUNK) for part in self._examples), strict=True):
            value = self._loss(self._model.module(inputs), targets)
            slopes = torch.autograd.grad(value, self._model.parameters, create_graph=True)
            yield slopes, len(targets) / self.num_examples


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
