"""The optimum of a convex federation, from scipy in float64, and how far a model is from it."""

from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError
from fedadmm.data.examples import Examples, is_whole
from fedadmm.data.federated import FederatedData
from fedadmm.training.evaluation import Loss
from fedadmm.training.flat import FlatModel, independent_copy
from fedadmm.training.objective import Objective, conjugate_gradients

CHUNK = 10_000  # examples in memory at once
TOLERANCE = 1e-10  # of the gradient's norm at the optimum
DENSE_UP_TO = 1000  # parameters whose Hessian is looked at for flat directions
FLAT = 1e-12  # curvature, relative to the largest, below which a direction counts as flat

Array = npt.NDArray[np.float64]


def mean_objective(
    module: nn.Module, data: FederatedData, *, loss: Loss, l2: float = 0.0, weights: Array | None = None
) -> Objective:
    """Return the weighted mean of all clients' objectives, sum_i weight_i f_i / sum_i weight_i, in float64.

    weights: one number per client, None where all weigh the same.
    """
    model = FlatModel(_InDouble(independent_copy(module).double().cpu().eval()))
    counts = np.asarray(data.num_examples, dtype=np.float64)
    own = np.ones_like(counts) if weights is None else weights
    shares = torch.from_numpy(np.repeat(own / own.sum() / counts, counts.astype(np.int64)))
    clients = [data.client(client) for client in range(data.num_clients)]
    inputs, targets = (torch.cat(parts) for parts in zip(*clients, strict=True))
    examples = Examples(inputs, targets.double() if targets.is_floating_point() else targets)
    if not is_linear(model, examples):
        raise InputError(
            "the model is a network whose outputs are not linear in its parameters, so it has no single optimum; "
            "use linear, logistic_regression or softmax_regression"
        )
    return Objective(model, examples, loss=loss, decay=l2, weights=shares, chunk=CHUNK)


class _InDouble(nn.Module):
    """A network whose inputs are made float64 a chunk at a time; whole numbers stay."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.module(inputs if is_whole(inputs) else inputs.double())
        return outputs


class Optimum:
    """The one minimiser of an objective, and the distance to it as a metric."""

    def __init__(self, objective: Objective, *, initial: Vector) -> None:
        """Find it from theta^0."""
        self.w = minimiser(objective, start=initial.detach().double().cpu())
        self._initial_gap = self._gap(initial) or 1.0

    def distance(self, theta: Vector) -> float:
        """Return |theta - optimum| / |theta^0 - optimum|."""
        return self._gap(theta) / self._initial_gap

    def _gap(self, theta: Vector) -> float:
        return float((theta.detach().double().cpu() - self.w).norm())


def minimiser(objective: Objective, *, start: Vector) -> Vector:
    """Return where the gradient is below TOLERANCE: scipy's L-BFGS to the rounding of the objective, then Newton."""
    from scipy.optimize import minimize  # imported here because it takes a while

    def value_and_gradient(w: Array) -> tuple[float, Array]:
        loss, gradient = objective.loss_and_gradient(torch.from_numpy(w), decay=objective.decay)
        return loss + 0.5 * objective.decay * float(w @ w), gradient.numpy()

    options = {"maxiter": 10_000, "maxfun": 20_000, "maxcor": 30, "ftol": 0.0, "gtol": TOLERANCE}
    found = minimize(value_and_gradient, start.numpy(), jac=True, method="L-BFGS-B", options=options)
    nearby = torch.from_numpy(found.x)
    _check_curved(objective, nearby)  # before Newton, whose steps along a flat direction are rounding errors
    w, gap = _polished(objective, nearby)
    if not gap < TOLERANCE:
        raise InputError(
            f"no optimum was found (the gradient's norm is still {gap:.1e}); a term model.l2 above 0 gives a convex "
            "problem one"
        )
    return w


def _polished(objective: Objective, w: Vector) -> tuple[Vector, float]:
    """Take Newton steps as long as they halve the gradient, whose norm is returned, too.

    No value is compared, so rounding sets in later.
    """
    gradient = objective.value_and_gradient(w)[1]
    size = float(gradient.norm())
    for _ in range(20):
        step = conjugate_gradients(partial(objective.hessian_product, w), -gradient, residual=1e-10)
        after = objective.value_and_gradient(w + step)[1]
        smaller = float(after.norm())
        if not smaller < size / 2:
            break
        w, gradient, size = w + step, after, smaller
    return w, size


def _check_curved(objective: Objective, w: Vector) -> None:
    """Refuse an objective with a flat direction: its minimisers are many, and a distance to one says nothing."""
    if objective.decay > 0:
        return
    if len(w) <= DENSE_UP_TO:
        rows = torch.eye(len(w), dtype=w.dtype)
        hessian = torch.stack([objective.hessian_product(w, row) for row in rows])
        curvatures = torch.linalg.eigvalsh((hessian + hessian.T) / 2)
        if curvatures[0] > FLAT * curvatures[-1]:
            return
    raise InputError(
        "the problem has more than one optimum, or too many parameters to tell, so no distance to it; "
        "give it a term model.l2 above 0, such as 0.01"
    )


def is_linear(model: FlatModel, examples: Examples) -> bool:
    """Return whether a model's outputs are affine in its parameters, as far as two points and one between them tell."""
    generator = torch.Generator().manual_seed(0)
    before, outputs = model.weights.clone(), []
    one, two = (torch.randn(len(before), generator=generator).to(before) for _ in range(2))
    inputs = examples.inputs[:5].to(before.device)
    inputs = inputs if is_whole(inputs) else inputs.to(before)
    training = model.module.training
    model.module.eval()
    with torch.no_grad():
        for w in (one, two, 0.25 * one + 0.75 * two):
            model.load(w)
            outputs.append(model.module(inputs))
    model.load(before)
    model.module.train(training)
    return torch.allclose(outputs[2], 0.25 * outputs[0] + 0.75 * outputs[1], rtol=1e-4, atol=1e-4)
