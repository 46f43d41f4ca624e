"""Least squares made to measure: client i has f_i(w) = 1/(2n) |A_i w - b_i|^2, conditioned as asked."""

from typing import Annotated, Any

import numpy as np
import torch

from fedadmm.core.seeds import stream
from fedadmm.core.settings import Count, NonNegative, Settings, within
from fedadmm.data.federated import PartitionedData


class QuadraticOptions(Settings):
    """What the quadratics of a federation look like."""

    dimension: Count = 10
    # Of every client's Hessian: its eigenvalues run from 1 / condition to 1.
    condition: Annotated[float, within("a number from 1 on", lambda x: 1 <= x < float("inf"))] = 10.0
    # How far a client's axes and minimiser are from those that all share; 0: all alike.
    heterogeneity: NonNegative = 1.0


def quadratic(*, num_clients: int, seed: int, **options: Any) -> PartitionedData:
    """Return the examples behind random quadratics, in float64; `options` are those of `QuadraticOptions`.

    Client i has as many examples as there are dimensions, n = d. The rows of A_i are its axes Q_i, scaled so that its
    Hessian A_i^T A_i / n is Q_i diag(1 / condition .. 1) Q_i^T, and b_i = A_i a_i for its own minimiser a_i.
    """
    chosen = QuadraticOptions(**options)
    d, spread = chosen.dimension, chosen.heterogeneity
    curvatures = np.geomspace(1 / chosen.condition, 1, d) if d > 1 else np.ones(1)
    shared = stream(seed, "quadratic")
    axes, minimiser = shared.standard_normal((d, d)), shared.standard_normal(d)
    inputs, targets = np.empty((num_clients, d, d)), np.empty((num_clients, d))
    for client in range(num_clients):
        own = stream(seed, "quadratic", client)
        rotation, _ = np.linalg.qr(axes + spread * own.standard_normal((d, d)))
        inputs[client] = np.sqrt(d * curvatures)[:, None] * rotation.T
        targets[client] = inputs[client] @ (minimiser + spread * own.standard_normal(d))
    return PartitionedData(
        inputs=torch.from_numpy(inputs.reshape(-1, d)),
        targets=torch.from_numpy(targets.reshape(-1)),
        offsets=np.arange(num_clients + 1) * d,
        test=None,
        num_classes=0,
    )
