"""L, the smoothness of the clients' objectives: exact, from the data, or estimated."""

from collections.abc import Callable

import torch

from fedadmm.core.algorithm import Vector

# The largest curvature of a loss in the scores of one example.
SOFTMAX, LOGISTIC, SQUARES = 1 / 2, 1 / 4, 1.0


def of_quadratics(hessians: torch.Tensor) -> float:
    """Return the largest |eigenvalue| of the Hessians, [client, d, d]: exact."""
    return float(torch.linalg.eigvalsh(hessians.double()).abs().max())


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
