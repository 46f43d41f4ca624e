"""The fused local step is SGD on f(w) + <dual, w> + rho/2 |w - centre|^2, as autograd and torch.optim.SGD do it."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.data.federated import PartitionedData
from fedadmm.training import objective
from fedadmm.training.problem import SGDProblem
from fedadmm.training.task import LearningTask
from worlds import learning_task, made, some_data

SEED, ROUND, CLIENT, EPOCHS, BATCH, LEARNING_RATE = 4, 3, 1, 2, 4, 0.2

Terms = dict[str, Any]


def _smooth_network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def _data() -> PartitionedData:
    data = some_data([8, 10, 6])  # ten examples in batches of four leave a last one of two
    return PartitionedData(data.inputs.double(), data.targets, data.offsets, None, 3)


def _task(**local: Any) -> LearningTask:
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": LEARNING_RATE} | local
    return learning_task(made(_smooth_network), _data(), seed=SEED, **settings)


def _problem(task: LearningTask, *, client: int = CLIENT, round: int = ROUND) -> SGDProblem:
    return task.problem(Assignment(client, round, EPOCHS), buffers=task.model.buffers())


def _vectors(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    size = sum(p.numel() for p in _smooth_network().parameters())
    return [torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(count)]


def _reference(start: torch.Tensor, terms: Terms, *, momentum: float, weight_decay: float) -> torch.Tensor:
    """Minimise the whole objective with autograd and torch's own optimizer, in the batches of the named streams."""
    module = copy.deepcopy(_smooth_network())
    nn.utils.vector_to_parameters(start, module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, momentum=momentum, weight_decay=weight_decay)
    inputs, targets = _data().client(CLIENT)
    for epoch in range(EPOCHS):
        order = stream(SEED, "batches", ROUND, CLIENT, epoch).permutation(len(targets))
        for batch in torch.from_numpy(order).split(BATCH):
            w = nn.utils.parameters_to_vector(module.parameters())
            objective = functional.cross_entropy(module(inputs[batch]), targets[batch])
            if "dual" in terms:
                objective = objective + terms["dual"] @ w
            if "rho" in terms:
                objective = objective + terms["rho"] / 2 * ((w - terms["centre"]) ** 2).sum()
            optimizer.zero_grad()
            objective.backward()
            optimizer.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("wanted", [(), ("dual",), ("rho", "centre"), ("dual", "rho", "centre")], ids=str)
def test_the_fused_step_is_torchs_sgd_on_the_whole_objective(
    wanted: tuple[str, ...], momentum: float, weight_decay: float
) -> None:
    start, dual, centre = _vectors(3)
    everything: Terms = {"dual": 0.3 * dual, "rho": 0.7, "centre": centre}
    terms = {name: everything[name] for name in wanted}
    problem = _problem(_task(momentum=momentum, weight_decay=weight_decay))
    ours = problem.solve(start=start, **terms).w
    theirs = _reference(start, terms, momentum=momentum, weight_decay=weight_decay)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_a_second_solve_does_not_inherit_the_first_ones_velocity() -> None:
    (start,) = _vectors(1)
    task = _task(momentum=0.9)
    assert torch.equal(_problem(task).solve(start=start).w, _problem(task).solve(start=start).w)


@pytest.mark.parametrize("chunk", [1000, 3, 10])
def test_the_gradient_is_that_of_the_mean_loss_over_all_examples(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "CHUNK", chunk)
    (w,) = _vectors(1)
    module = _smooth_network()
    nn.utils.vector_to_parameters(w, module.parameters())
    inputs, targets = _data().client(CLIENT)
    functional.cross_entropy(module(inputs), targets).backward()
    theirs = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    problem = _problem(_task())
    torch.testing.assert_close(problem.gradient(w), theirs, rtol=1e-12, atol=1e-14)
    assert problem.stats().gradient_evaluations == 10


def test_a_parameter_that_the_loss_does_not_reach_has_gradient_zero() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.used(inputs)

    task = learning_task(made(Idle), some_data([8, 8, 8]))
    start = task.model.weights.clone()
    w = task.problem(Assignment(0, 1, 1), buffers=task.model.buffers()).solve(start=start).w
    moved = (w != start).view(2, 15)
    assert moved[0].any()
    assert not moved[1].any()


def test_effort_is_what_was_done() -> None:
    # Ten examples in batches of four: three steps an epoch, two epochs.
    problem = _problem(_task())
    assert (problem.num_steps, problem.num_examples, problem.round) == (6, 10, ROUND)
    problem.solve(start=_vectors(1)[0])
    stats = problem.stats()
    assert (stats.steps, stats.gradient_evaluations) == (6, 20)


def test_the_loss_of_an_effort_is_the_mean_over_its_steps() -> None:
    # One full batch a step, and a learning rate so small that nothing moves: the loss at the start.
    (start,) = _vectors(1)
    task = _task(batch_size="full", learning_rate=1e-12)
    problem = _problem(task)
    problem.solve(start=start)
    expected = task.evaluate_client(CLIENT, start, buffers=task.model.buffers())["loss"]
    assert problem.num_steps == EPOCHS
    assert problem.stats().loss == pytest.approx(expected, rel=1e-6)


def test_the_learning_rate_may_follow_a_schedule() -> None:
    task = _task(learning_rate={"schedule": "step", "before": 0.2, "after": 0.05, "at_round": 3})
    assert [_problem(task, round=round).learning_rate for round in (2, 3)] == [0.2, 0.05]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_trained_on_as_they_are(channels: int) -> None:
    # However they lie in memory: one step on a full batch is w - lr grad f(w), the gradient from autograd.
    def convolution() -> nn.Module:
        layers = nn.Conv2d(channels, 2, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)
        return nn.Sequential(*layers).double()

    inputs = torch.randn(5, channels, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    data = PartitionedData(inputs, torch.arange(5) % 3, np.array([0, 5]), None, 3)
    module = made(convolution)
    start = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    functional.cross_entropy(module(inputs), data.targets).backward()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()])
    task = learning_task(made(convolution), data, batch_size="full", learning_rate=LEARNING_RATE)
    w = task.problem(Assignment(0, 1, 1), buffers=task.model.buffers()).solve(start=start).w
    torch.testing.assert_close(w, start - LEARNING_RATE * gradient, rtol=1e-12, atol=1e-14)
