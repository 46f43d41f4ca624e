"""FedHybrid reaches the optimum whoever takes Newton steps, needs everyone, and refuses networks."""

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import nn
from torch.nn import functional

from fedadmm import FedHybrid, InputError, LocalTraining, Simulation
from fedadmm.core.round import Assignment
from fedadmm.data.federated import in_float_type
from fedadmm.data.generated import quadratic
from fedadmm.engine.choice import choose
from fedadmm.training import objective
from fedadmm.training.evaluation import least_squares
from fedadmm.training.task import LearningTask
from play import Play, identical
from quadratics import heterogeneous
from worlds import made, some_data

NUM_CLIENTS = 10
CLIENTS = heterogeneous(NUM_CLIENTS, 6, seed=1, learning_rate=0.5)


def _scipys_optimum() -> np.ndarray:
    hessians, targets = CLIENTS.hessians.numpy(), CLIENTS.targets.numpy()

    def mean_of_all(w: np.ndarray) -> tuple[float, np.ndarray]:
        gaps = w - targets
        gradients = np.einsum("ijk,ik->ij", hessians, gaps)
        return 0.5 * float((gaps * gradients).mean(axis=0).sum()), gradients.mean(axis=0)

    options = {"gtol": 1e-11}
    found = scipy.optimize.minimize(
        mean_of_all, np.zeros(6), jac=True, hess=lambda _: hessians.mean(axis=0), method="trust-exact", options=options
    )
    return found.x


@pytest.mark.parametrize("newton", [0.0, 0.5, 1.0])
def test_gradient_newton_and_mixed_clients_reach_scipys_optimum(newton: float) -> None:
    play = Play(FedHybrid(newton=newton), CLIENTS, torch.zeros(6).double(), num_clients=NUM_CLIENTS)
    for _ in range(120):
        play.round(range(NUM_CLIENTS))
    assert np.linalg.norm(play.theta.numpy() - _scipys_optimum()) < 1e-8


def test_rounds_are_those_of_the_papers_equations() -> None:
    # With x_0, x_i, lambda_i and mu, as printed, on all clients at once.
    method = FedHybrid(rho=0.8, newton=0.3, beta=0.4, alpha_newton=0.9, beta_newton=0.6)
    newton = [method.takes_newton_steps(client) for client in range(NUM_CLIENTS)]
    assert sum(newton) == 3
    hessians, targets, mu = CLIENTS.hessians.numpy(), CLIENTS.targets.numpy(), 0.8
    x_0, x, dual = np.ones(6), np.ones((NUM_CLIENTS, 6)), np.zeros((NUM_CLIENTS, 6))
    play = Play(method, CLIENTS, torch.ones(6).double(), num_clients=NUM_CLIENTS)
    for _ in range(4):
        for i in range(NUM_CLIENTS):
            slope = hessians[i] @ (x[i] - targets[i]) - dual[i] + mu * (x[i] - x_0)
            p = hessians[i] + mu * np.eye(6)
            old = x[i].copy()
            x[i] = old - (0.9 * np.linalg.solve(p, slope) if newton[i] else 0.5 * slope)
            dual[i] = dual[i] + (0.6 * p @ (x_0 - old) if newton[i] else 0.4 * (x_0 - old))
        x_0 = x.mean(axis=0) - dual.mean(axis=0) / mu
        play.round(range(NUM_CLIENTS))
        np.testing.assert_allclose(play.theta.numpy(), x_0, atol=1e-13)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.29, 0.5, 1.0])
def test_the_share_of_newton_clients_is_as_asked(share: float) -> None:
    method = FedHybrid(newton=share)
    assert sum(map(method.takes_newton_steps, range(100))) == round(100 * share)


def _task(dimension: int, *, l2: float = 0.2) -> LearningTask:
    data = in_float_type(some_data([8, 1200]), torch.float64)
    module = made(lambda: nn.Linear(4, 3)).double()
    return LearningTask(module, data, local=LocalTraining(), loss=functional.cross_entropy, metrics={}, seed=0, l2=l2)


@pytest.mark.slow
@pytest.mark.parametrize("dense_up_to", [0, 200])
def test_a_hessian_is_the_slope_of_the_gradient(monkeypatch: pytest.MonkeyPatch, dense_up_to: int) -> None:
    # 1,200 examples are two chunks; by central differences of the gradient.
    monkeypatch.setattr(objective, "DENSE_UP_TO", dense_up_to)
    task = _task(4)
    problem = task.problem(Assignment(1, 1, 1), buffers=task.buffers())
    generator = torch.Generator().manual_seed(0)
    w, ahead = (torch.randn(15, dtype=torch.float64, generator=generator) for _ in range(2))
    slope = (problem.gradient(w + 1e-5 * ahead) - problem.gradient(w - 1e-5 * ahead)) / 2e-5
    torch.testing.assert_close(problem.hessian_product(w, ahead), slope, rtol=1e-6, atol=1e-8)
    solved = problem.hessian_solve(w, ahead, rho=0.3)
    torch.testing.assert_close(problem.hessian_product(w, solved) + 0.3 * solved, ahead, rtol=1e-9, atol=1e-10)


def _simulation(method: FedHybrid, **options: object) -> Simulation:
    settings = {
        "model": "linear",
        "data": quadratic(num_clients=4, seed=0, dimension=3),
        "local": LocalTraining(learning_rate=0.5),
        "loss": least_squares,
        "participation": 1.0,
        "engine": "serial",
        "metric": "distance",
        "l2": 0.1,
    }
    return Simulation(method, seed=0, **settings | options)


@pytest.mark.slow
def test_serial_and_workers_are_identical_and_reach_the_optimum() -> None:
    runs = [_simulation(FedHybrid(), engine=engine, workers=2) for engine in ("serial", "workers")]
    for _ in range(5):
        for run in runs:
            run.advance()
    assert identical(runs[0].theta, runs[1].theta)
    runs[1].close()
    assert min(runs[0].advance().metrics["distance"] for _ in range(100)) < 1e-8


def test_it_needs_everyone() -> None:
    for participation in (0.5, [1.0, 1.0, 0.5, 1.0]):
        with pytest.raises(InputError, match=r"FedHybrid needs every client in every round, and participation is 0\.5"):
            _simulation(FedHybrid(), participation=participation)
    _simulation(FedHybrid(), participation=[1.0] * 4)


def test_a_network_is_refused() -> None:
    with pytest.raises(InputError, match="takes Newton steps, which need a convex problem, and the model is a network"):
        _simulation(FedHybrid(), model="mlp", data=some_data([8, 8]), loss=functional.cross_entropy, metric="accuracy")


@pytest.mark.slow
def test_a_stack_is_refused_and_auto_takes_workers() -> None:
    with pytest.raises(InputError, match=r"FedHybrid cannot run on a stack of clients .it takes Newton steps"):
        _simulation(FedHybrid(), engine="stacked")
    assert choose("auto", FedHybrid(), _task(4)).name == "workers"
