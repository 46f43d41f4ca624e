"""The term l2/2 |w|^2 belongs to the objective: every gradient and every engine sees it."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedadmm import FedADMM, FedAvg, FedDyn, FedSGD, LocalTraining, Scaffold, Simulation
from fedadmm.core.round import Assignment
from fedadmm.data.federated import in_float_type, two_classes
from fedadmm.data.generated import quadratic
from fedadmm.training.evaluation import least_squares
from fedadmm.training.models import initial_model
from fedadmm.training.task import LearningTask
from worlds import some_data

L2 = 0.3
CLIENT = Assignment(1, 1, 2)


def _task(*, l2=L2, **local):
    data = quadratic(num_clients=3, seed=0, dimension=4)
    module = initial_model("linear", inputs=data.inputs, seed=0)
    settings = LocalTraining(**{"epochs": 2, "batch_size": "full", "learning_rate": 0.1} | local)
    return LearningTask(module, data, local=settings, loss=least_squares, metrics={}, seed=0, l2=l2)


def _gradient(task, w):
    """Return the gradient of f_1 at w by hand: of the loss through numpy, and l2 w."""
    a, b = (part.numpy() for part in task.data.client(1))
    rows = np.hstack([a, np.ones((4, 1))])
    return torch.from_numpy(rows.T @ (rows @ w.numpy() - b) / 4 + L2 * w.numpy())


def test_the_gradient_has_the_term():
    task = _task()
    w = torch.linspace(-1, 2, 5, dtype=torch.float64)
    for problem in (task.problem(CLIENT, buffers=task.buffers()), task.stack([CLIENT], buffers=task.buffers())):
        torch.testing.assert_close(problem.gradient(w).reshape(-1), _gradient(task, w))


def test_the_local_solver_has_the_term_and_it_is_no_step_on_its_own():
    task = _task()
    w = torch.linspace(-1, 2, 5, dtype=torch.float64)
    centre, dual = torch.ones_like(w), torch.full_like(w, 0.2)
    right = w
    for _ in range(2):
        right = right - 0.1 * (_gradient(task, right) + dual + 0.5 * (right - centre))
    for problem in (task.problem(CLIENT, buffers=task.buffers()), task.stack([CLIENT], buffers=task.buffers())):
        found = problem.solve(start=w, dual=dual, rho=0.5, centre=centre).w.reshape(-1)
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize("solver", ["sgd", "gd", "lbfgs"])
def test_every_solver_judges_its_tolerance_with_the_term(solver):
    task = _task(solver=solver, tolerance=1e-18, learning_rate=0.3)
    w = torch.linspace(-1, 2, 5, dtype=torch.float64)
    centre, dual = torch.ones_like(w), torch.full_like(w, 0.2)
    problem = task.problem(CLIENT._replace(epochs=500), buffers=task.buffers())
    found = problem.solve(start=w, dual=dual, rho=0.5, centre=centre).w
    left = _gradient(task, found) + dual + 0.5 * (found - centre)
    assert float(left @ left) <= 1.01e-18
    assert problem.stats().steps < 500


def _simulation(algorithm, *, engine="serial", model="logistic_regression", data=None, **options):
    if data is None:
        data = in_float_type(two_classes(some_data([5, 9, 6, 12]), positive=[1]), torch.float64)
    local = LocalTraining(**{"epochs": 3, "batch_size": "full", "learning_rate": 0.02} | options.pop("local", {}))
    return Simulation(
        algorithm,
        model=model,
        data=data,
        local=local,
        participation=1.0,
        seed=0,
        engine=engine,
        metric="distance",
        l2=0.1,
        **options,
    )


@pytest.mark.parametrize("loss", [functional.cross_entropy, least_squares], ids=["cross_entropy", "squares"])
@pytest.mark.parametrize("model", ["logistic_regression", "linear"])
def test_engines_agree_in_float64(model, loss):
    runs = [_simulation(FedADMM(rho=0.5), engine=engine, model=model, loss=loss) for engine in ("serial", "stacked")]
    for _ in range(3):
        records = [run.advance() for run in runs]
    assert runs[0].theta.dtype == torch.float64
    torch.testing.assert_close(runs[0].theta, runs[1].theta, rtol=1e-11, atol=1e-12)
    assert records[0].metrics["distance"] == pytest.approx(records[1].metrics["distance"], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "local"),
    [
        (FedSGD(), {"learning_rate": 1.0}),
        (FedADMM(rho=1.0), {"epochs": 30, "learning_rate": 0.4}),
        (FedDyn(rho=1.0), {"epochs": 30, "learning_rate": 0.4}),
        (Scaffold(), {"epochs": 5, "learning_rate": 0.4}),
    ],
    ids=str,
)
def test_a_run_reaches_the_optimum_to_1e_8_in_float64(algorithm, local):
    data = quadratic(num_clients=6, seed=2, dimension=5)
    run = _simulation(algorithm, engine="stacked", model="linear", data=data, loss=least_squares, local=local)
    distance = 1.0
    for _ in range(100):
        distance = run.advance().metrics["distance"]
        if distance < 1e-8:
            break
    assert distance < 1e-8


@pytest.mark.slow
def test_fedavg_ends_elsewhere():
    data = quadratic(num_clients=6, seed=2, dimension=5)
    local = {"epochs": 20, "learning_rate": 0.4}
    run = _simulation(FedAvg(), engine="stacked", model="linear", data=data, loss=least_squares, local=local)
    assert min(run.advance().metrics["distance"] for _ in range(20)) > 1e-2
