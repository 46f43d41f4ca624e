"""What is measured for rho where gradients are clipped, and where a client has nothing left to learn: by hand."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

import fedadmm
from fedadmm import LocalTraining, Simulation
from fedadmm.algorithms import FastFedADMM, FedADMMAuto, FedDynAuto
from fedadmm.algorithms.stiffness import stiffness
from worlds import made, perceptron, some_data

THETA = torch.tensor([3.0, 4.0])
EPS = torch.finfo(torch.float32).eps
METHODS = [FastFedADMM(), FedDynAuto(), FedADMMAuto()]


def held(gradient: torch.Tensor, way: torch.Tensor, *, clip: float | None = None, y: float = 0.0) -> Any:
    """Return the stiffness of a client that went this way from THETA against a gradient."""
    problem: Any = SimpleNamespace(gradient=lambda w: gradient, clip=clip)
    theta = THETA.expand_as(gradient)
    return stiffness(problem, theta=theta, w=theta + way, y=torch.full_like(theta, y), rho=1.0)


def test_a_gradient_counts_as_far_as_local_steps_follow_it() -> None:
    gradient, way = torch.tensor([30.0, 40.0]), torch.tensor([-1.5, -2.0])  # lengths 50 and 2.5
    assert held(gradient, way) == pytest.approx(50 / 2.5 - 1)
    assert held(gradient, way, clip=10.0) == pytest.approx(10 / 2.5 - 1)
    assert held(gradient, way, clip=60.0) == pytest.approx(50 / 2.5 - 1)
    # The dual is not clipped: (6, 8) + (6, 6) has the length sqrt(12^2 + 14^2).
    assert held(gradient, way, clip=10.0, y=6.0) == pytest.approx(340**0.5 / 2.5 - 1)
    rows = held(torch.stack([gradient, gradient / 10]), torch.stack([way, way]), clip=10.0)
    assert rows.tolist() == [[pytest.approx(10 / 2.5 - 1)], [pytest.approx(5 / 2.5 - 1)]]  # of a stack


def test_what_is_no_more_than_rounding_is_nothing() -> None:
    gradient = torch.tensor([3e-3, 4e-3])
    assert held(gradient, torch.zeros(2)) == 0.0  # nobody moved
    assert held(gradient, torch.tensor([EPS, 0.0])) == 0.0
    assert held(gradient, -gradient * (1 - 1e-6)) == 0.0  # one step of length 1 / rho, but for its last digits
    assert held(gradient, -gradient / 1.01) == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize("engine", ["serial", "stacked"])
@pytest.mark.parametrize("method", [FedDynAuto(), FedDynAuto(over="all"), FedADMMAuto()], ids=repr)
def test_a_single_local_step_tells_no_stiffness(method: Any, engine: str) -> None:
    local = LocalTraining(epochs=1, batch_size="full", learning_rate=0.1)
    run = Simulation(
        method, model=made(perceptron), data=some_data([8] * 8), local=local, seed=0, engine=engine, participation=0.5
    )
    losses = [run.advance().client_loss for _ in range(6)]
    assert run.checkpoint.server.rho == 0.0  # so each round goes by the first guess
    assert max(losses) < 1.3


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_clients_that_need_no_step_do_not_stop_the_others(method: Any) -> None:
    local = LocalTraining(epochs=5, solver="gd", tolerance=0.3, learning_rate=0.1)
    run = Simulation(
        method, model=made(perceptron), data=some_data([8] * 8), local=local, seed=0, engine="serial", participation=1.0
    )
    records = [run.advance() for _ in range(4)]
    assert [record.refused for record in records] == [()] * 4
    assert run.checkpoint.server.rho < 100


@pytest.mark.parametrize("engine", ["serial", "stacked"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_client_with_nothing_left_to_learn_ends_no_run(method: Any, engine: str) -> None:
    # Client 0 is told apart with a margin of 20 at once, as in fine-tuning: its step is rounded away.
    inputs = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    inputs[:20] = torch.tensor([5.0, 0.0])
    targets = (inputs.sum(dim=1) > 0).long()
    targets[:20] = 0
    data = fedadmm.federate(
        fedadmm.make_dataset((inputs, targets), (inputs[20:], targets[20:])),
        num_clients=10,
        partition=lambda *_, **__: [list(range(20 * i, 20 * i + 20)) for i in range(10)],
        seed=0,
    )

    def fitted(input_shape: Any, num_classes: Any) -> torch.nn.Module:
        model = torch.nn.Linear(2, 2)
        model.weight.data, model.bias.data = torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), torch.tensor([0.3, -0.3])
        return model

    local = fedadmm.LocalTraining(epochs=2)
    result = fedadmm.simulate(
        method, model=fitted, data=data, rounds=5, participation=1.0, engine=engine, local=local, progress=False
    )
    assert [record.refused for record in result.history] == [()] * 5
    assert result.history[-1].accuracy > result.history[0].accuracy


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_run_whose_gradients_are_clipped_learns(method: Any) -> None:
    # Pixels from 0 to 255: gradients in the hundreds, of which local steps follow 10.
    digits = load_digits()
    inputs, targets = torch.tensor(digits.data, dtype=torch.float32) / 16 * 255, torch.tensor(digits.target)
    data = fedadmm.federate(
        fedadmm.make_dataset((inputs[:1400], targets[:1400]), (inputs[1400:], targets[1400:])),
        num_clients=50,
        partition="shards",
        seed=0,
    )
    local = fedadmm.LocalTraining(epochs=2, clip=10.0)
    result = fedadmm.simulate(
        method, model="softmax_regression", data=data, rounds=6, participation=0.2, local=local, progress=False
    )
    assert [record.refused for record in result.history] == [()] * 6
    assert result.history[-1].accuracy > 0.3  # a tenth is chance
