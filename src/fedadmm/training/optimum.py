"""The optimum of a convex federation, from scipy in float64, and how far a model is from it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError
from fedadmm.data.examples import Examples, is_whole
from fedadmm.training import derivatives
from fedadmm.training.evaluation import Loss
from fedadmm.training.flat import FlatModel, independent_copy
from fedadmm.training.stacked.gradients import loss_of_each

CHUNK = 10_000  # examples in memory at once
TOLERANCE = 1e-10  # of the gradient's norm at the optimum
DENSE_UP_TO = 1000  # parameters whose Hessian is looked at for flat directions
FLAT = 1e-12  # curvature, relative to the largest, below which a direction counts as flat

Array = npt.NDArray[np.float64]


class Objective:
    """The weighted mean of all clients' objectives, sum_i weight_i f_i / sum_i weight_i, in float64."""

    def __init__(
        self,
        module: nn.Module,
        data: Any,
        *,
        loss: Loss,
        l2: float = 0.0,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> None:
        """Begin; `weights` has one number per client, None where all weigh the same."""
        self._model = FlatModel(independent_copy(module).double().cpu().eval())
        self._losses, self.l2 = loss_of_each(loss), l2
        counts = np.asarray(data.num_examples, dtype=np.float64)
        own = np.ones_like(counts) if weights is None else weights
        self._shares = torch.from_numpy(np.repeat(own / own.sum() / counts, counts.astype(np.int64)))
        clients = [data.client(client) for client in range(data.num_clients)]
        self._examples = Examples(
            torch.cat([part.inputs for part in clients]), torch.cat([part.targets for part in clients])
        )
        self.num_parameters = self._model.weights.numel()
        if not is_linear(self._model, self._examples):
            raise InputError(
                "the model is a network whose outputs are not linear in its parameters, so it has no single optimum; "
                "use linear, logistic_regression or softmax_regression"
            )

    def value_and_gradient(self, w: Array) -> tuple[float, Array]:
        """Return the objective and its gradient."""
        point = torch.from_numpy(w)
        ridge = 0.5 * self.l2 * float(w @ w), self.l2 * point
        value, gradient = derivatives.value_and_gradient(self._model, self._parts(point), start=ridge)
        return value, gradient.numpy()

    def gradient(self, w: Array) -> Array:
        """Return the gradient."""
        return self.value_and_gradient(w)[1]

    def hessian_product(self, w: Array, direction: Array) -> Array:
        """Return the Hessian at w times a direction."""
        parts = self._parts(torch.from_numpy(w))
        product: Array = derivatives.hessian_product(
            self._model, parts, direction=torch.from_numpy(direction), l2=self.l2
        ).numpy()
        return product

    def _parts(self, w: Vector) -> Iterator[torch.Tensor]:
        self._model.load(w)
        for inputs, targets, shares in zip(
            *(part.split(CHUNK) for part in (*self._examples, self._shares)), strict=True
        ):
            outputs = self._model.module(inputs if is_whole(inputs) else inputs.double())
            numbers = targets.double() if targets.is_floating_point() else targets
            yield (self._losses(outputs, numbers) * shares).sum()


class Optimum:
    """The one minimiser of an objective, and the distance to it as a metric."""

    def __init__(self, objective: Objective, *, initial: Vector) -> None:
        """Find it from theta^0."""
        self.w = torch.from_numpy(minimiser(objective, start=_array(initial)))
        self._initial_gap = self._gap(initial) or 1.0

    def distance(self, theta: Vector) -> float:
        """Return |theta - optimum| / |theta^0 - optimum|."""
        return self._gap(theta) / self._initial_gap

    def _gap(self, theta: Vector) -> float:
        return float((theta.detach().double().cpu() - self.w).norm())


def minimiser(objective: Objective, *, start: Array) -> Array:
    """Return where the gradient is below TOLERANCE: scipy's L-BFGS to the rounding of the objective, then Newton."""
    from scipy.optimize import minimize  # here, for it takes a while to import

    options = {"maxiter": 10_000, "maxfun": 20_000, "maxcor": 30, "ftol": 0.0, "gtol": TOLERANCE}
    found = minimize(objective.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    nearby = np.asarray(found.x, dtype=np.float64)
    _check_curved(objective, nearby)  # before Newton, whose steps along a flat direction are rounding errors
    w = _polished(objective, nearby)
    gap = float(np.linalg.norm(objective.gradient(w)))
    if not gap < TOLERANCE:
        raise InputError(
            f"no optimum was found (the gradient's norm is still {gap:.1e}); a term model.l2 above 0 gives a convex "
            "problem one"
        )
    return w


def _polished(objective: Objective, w: Array) -> Array:
    """Take Newton steps as long as they halve the gradient: no value is compared, so rounding sets in later."""
    from scipy.sparse.linalg import LinearOperator, cg

    gradient = objective.gradient(w)
    size = float(np.linalg.norm(gradient))
    for _ in range(20):
        hessian = partial(objective.hessian_product, w)
        operator = LinearOperator((len(w), len(w)), matvec=hessian, dtype=np.float64)
        step, _ = cg(operator, -gradient, rtol=1e-10, maxiter=10 * len(w))
        after = objective.gradient(w + step)
        smaller = float(np.linalg.norm(after))
        if not smaller < size / 2:
            break
        w, gradient, size = w + step, after, smaller
    return w


def _check_curved(objective: Objective, w: Array) -> None:
    """Refuse an objective with a flat direction: its minimisers are many, and a distance to one says nothing."""
    if objective.l2 > 0:
        return
    if len(w) <= DENSE_UP_TO:
        hessian = np.array([objective.hessian_product(w, row) for row in np.eye(len(w))])
        curvatures = np.linalg.eigvalsh((hessian + hessian.T) / 2)
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


def _array(vector: Vector) -> Array:
    array: Array = vector.detach().double().cpu().numpy()
    return array
