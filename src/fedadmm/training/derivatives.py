"""Derivatives of an objective that comes in parts, such as the shares of chunks of examples in a mean loss."""

from collections.abc import Iterable

import torch

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError
from fedadmm.training.flat import FlatModel

Parts = Iterable[torch.Tensor]  # their sum is the objective at the model's weights


def value_and_gradient(model: FlatModel, parts: Parts, *, start: tuple[float, Vector]) -> tuple[float, Vector]:
    """Return the sum of the parts and its gradient, on top of a term of which both are known."""
    value, gradient = start
    for part in parts:
        gradient = gradient + flat(torch.autograd.grad(part, model.parameters))
        value += float(part.detach())
    return value, gradient


def hessian_product(model: FlatModel, parts: Parts, *, direction: Vector, l2: float) -> Vector:
    """Return the Hessian of the sum of the parts and of l2/2 |w|^2 times a direction."""
    steps, product = model.split(direction), l2 * direction
    for part in parts:
        slopes = torch.autograd.grad(part, model.parameters, create_graph=True)
        along = torch.stack([(slope * step).sum() for slope, step in zip(slopes, steps, strict=True)]).sum()
        product = product + flat(_second(along, model))
    return product


def _second(along: torch.Tensor, model: FlatModel) -> tuple[torch.Tensor, ...]:
    try:
        return torch.autograd.grad(along, model.parameters, materialize_grads=True)
    except NotImplementedError as error:
        raise InputError(
            f"torch has no second derivative of the model ({error}); use other layers, such as nn.Embedding and a mean "
            "for nn.EmbeddingBag"
        ) from error


def flat(tensors: Iterable[torch.Tensor]) -> Vector:
    """Return tensors in the shapes of the parameters as one vector."""
    return torch.cat([(t.to_dense() if t.is_sparse else t).reshape(-1) for t in tensors])
