"""The optimum is the one that others find: numpy's normal equations, scikit-learn's regressions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional

from fedadmm import InputError
from fedadmm.data.federated import two_classes
from fedadmm.data.generated import quadratic
from fedadmm.training.evaluation import least_squares
from fedadmm.training.models import initial_model
from fedadmm.training.optimum import Optimum, mean_objective, minimiser
from worlds import some_data

L2 = 0.02


@pytest.fixture(scope="module")
def data():
    """Return clients with 5 to 40 examples of three classes each, in float32."""
    return some_data([5, 40, 12, 8, 20])


def _objective(model, data, *, loss=functional.cross_entropy, weights=None, **options):
    module = initial_model(model, inputs=data.inputs, num_classes=data.num_classes, seed=0)
    return mean_objective(module, data, loss=loss, weights=weights, **options)


def _found(objective):
    return minimiser(objective, start=torch.zeros_like(objective.model.weights)).numpy()


def _rows(data):
    """Return the inputs beside a column of ones, which is the bias."""
    return np.hstack([data.inputs.double().numpy(), np.ones((len(data.targets), 1))])


def _shares(data, *, weighting):
    """Return the weight of each example in the mean over clients."""
    counts = data.num_examples.astype(float)
    own = np.ones_like(counts) if weighting == "equal" else counts
    return np.repeat(own / own.sum() / counts, data.num_examples)


@pytest.mark.parametrize("weighting", ["equal", "examples"])
def test_least_squares_is_at_the_normal_equations(data, weighting):
    weights = None if weighting == "equal" else data.num_examples.astype(float)
    found = _found(_objective("linear", data, loss=least_squares, l2=L2, weights=weights))
    a, shares = _rows(data), _shares(data, weighting=weighting)
    right = np.linalg.solve((a.T * shares) @ a + L2 * np.eye(5), (a.T * shares) @ np.eye(3)[data.targets])
    np.testing.assert_allclose(found[:12].reshape(3, 4).T, right[:4], atol=1e-9)
    np.testing.assert_allclose(found[12:], right[4], atol=1e-9)


def test_quadratics_need_no_l2_and_have_their_closed_form():
    data = quadratic(num_clients=7, seed=3, dimension=5, condition=100.0)
    found = _found(_objective("linear", data, loss=least_squares))
    right = np.linalg.lstsq(_rows(data), data.targets.numpy(), rcond=None)[0]
    np.testing.assert_allclose(found, right, atol=1e-9)


@pytest.mark.parametrize("weighting", ["equal", "examples"])
@pytest.mark.parametrize("model", ["logistic_regression", "softmax_regression"])
def test_regressions_are_at_scikit_learns_optimum(data, model, weighting):
    # scikit-learn minimises sum_j s_j loss_j + 1/(2 C) |w|^2, without a penalty on an intercept: so a column of ones.
    data = data if model == "softmax_regression" else two_classes(data, positive=[1])
    weights = None if weighting == "equal" else data.num_examples.astype(float)
    found = _found(_objective(model, data, l2=L2, weights=weights))
    right = LogisticRegression(C=1 / L2, fit_intercept=False, solver="newton-cg", tol=1e-10, max_iter=1000)
    right.fit(_rows(data), data.targets.numpy(), sample_weight=_shares(data, weighting=weighting))
    outputs = len(right.coef_)
    np.testing.assert_allclose(found[: 4 * outputs].reshape(outputs, 4), right.coef_[:, :4], atol=1e-7)
    np.testing.assert_allclose(found[4 * outputs :], right.coef_[:, 4], atol=1e-7)


def test_the_distance_is_1_at_the_start_and_relative_to_it():
    data = quadratic(num_clients=4, seed=0, dimension=3)
    objective = _objective("linear", data, loss=least_squares, l2=0.1)
    start = torch.tensor([5.0, -1.0, 2.0, 0.0], dtype=torch.float64)
    optimum = Optimum(objective, initial=start)
    assert optimum.distance(start) == 1.0
    assert optimum.distance(optimum.w) == 0.0
    assert optimum.distance((optimum.w + 0.25 * (start - optimum.w)).float()) == pytest.approx(0.25)


def test_a_network_has_no_single_optimum(data):
    with pytest.raises(InputError, match="outputs are not linear in its parameters, so it has no single"):
        _objective("mlp", data, l2=L2)


def test_many_optima_are_refused(data):
    # The scores of softmax regression may all be shifted; a feature that stands there twice may share its weight.
    twice = replace(quadratic(num_clients=1, seed=0, dimension=3), inputs=torch.ones(3, 2).double())
    for objective in (_objective("softmax_regression", data), _objective("linear", twice, loss=least_squares)):
        with pytest.raises(InputError, match=r"more than one optimum, or too many.* model\.l2 above 0"):
            _found(objective)
