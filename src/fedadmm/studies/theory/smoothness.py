"""L, the smoothness of the clients' objectives: exact, from the data, or estimated."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedadmm.core.algorithm import Vector
from fedadmm.core.round import Buffers
from fedadmm.training.evaluation import least_squares
from fedadmm.training.models import AgainstZero
from fedadmm.training.task import LearningTask

# The largest curvature of a loss in the scores of one example.
SOFTMAX, LOGISTIC, SQUARES = 1 / 2, 1 / 4, 1.0


class Smoothness(NamedTuple):
    """L, and what is known of it."""

    value: float
    kind: Literal["exact", "bound", "estimate"]
    how: str

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.kind}: {self.how})"


def of_linear_model(inputs: torch.Tensor, *, curvature: float, bias: bool = True) -> float:
    """Return curvature x lambda_max(X^T X) / n for the mean loss of scores X w (+ b) over one client's n inputs.

    Exact for squares; for the logistic and the softmax loss the least bound that holds at every w.
    """
    rows = inputs.reshape(len(inputs), -1).double()
    if bias:
        rows = torch.cat([rows, torch.ones(len(rows), 1, dtype=rows.dtype)], dim=1)
    return curvature * float(torch.linalg.matrix_norm(rows, ord=2)) ** 2 / len(rows)


def largest_curvature(
    product: Callable[[Vector], Vector], *, start: Vector, iterations: int = 100, tolerance: float = 1e-3
) -> float:
    """Estimate the largest |eigenvalue| of a Hessian from its products with vectors, by power iteration.

    It comes from below, and it tells of one point only: an estimate of L, never a bound.
    """
    vector, found = start / start.norm(), 0.0
    for _ in range(iterations):
        image = product(vector)
        before, found = found, float(image.norm())
        if found == 0 or abs(found - before) <= tolerance * found:
            break
        vector = image / found
    return found


def of_task(task: LearningTask, *, w: Vector, buffers: Buffers, estimate_on: int = 10) -> Smoothness:
    """Return the largest L of a client: from the data for one dense layer, else an estimate at w on some clients."""
    known = _known_curvature(task)
    if known is not None:
        curvature, bias, how = known
        objectives = [task.objective(client, buffers=buffers) for client in range(task.data.num_clients)]
        found = [of_linear_model(one.examples.inputs, curvature=curvature, bias=bias) + one.decay for one in objectives]
        return Smoothness(max(found), "exact" if how == "least squares" else "bound", f"{how}, from the data")
    step = max(1, task.data.num_clients // estimate_on)
    chosen = range(0, task.data.num_clients, step)[:estimate_on]
    start = torch.randn(len(w), dtype=w.dtype, generator=torch.Generator().manual_seed(0)).to(w.device)
    curvatures = [
        largest_curvature(
            partial(task.objective(client, buffers=buffers).hessian_product, w), start=start, iterations=30
        )
        for client in chosen
    ]
    how = f"power iteration on the Hessians of {len(chosen)} clients at the last theta"
    return Smoothness(max(curvatures), "estimate", how)


def _known_curvature(task: LearningTask) -> tuple[float, bool, str] | None:
    """Return a loss's largest curvature in the scores and whether there is a bias, None but for one dense layer."""
    layers = [module for module in task.model.module.modules() if not any(module.children())]
    dense = [module for module in layers if isinstance(module, nn.Linear)]
    if len(dense) != 1 or not all(isinstance(m, nn.Linear | nn.Flatten | AgainstZero) for m in layers):
        return None
    bias = dense[0].bias is not None
    numbers = task.data.client(0).targets.is_floating_point()
    if task.loss is functional.cross_entropy and not numbers:
        logistic = any(isinstance(module, AgainstZero) for module in layers)
        return (LOGISTIC, bias, "logistic loss") if logistic else (SOFTMAX, bias, "softmax")
    if task.loss is least_squares:
        return SQUARES / (dense[0].out_features if numbers else 1), bias, "least squares"
    return None
