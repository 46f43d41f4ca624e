"""Batches and dropout come from streams of their own: repeatable, and different for each client and round."""

from typing import Any

import pytest
import torch
from torch import nn

from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.training.task import LearningTask
from worlds import learning_task, made, some_data


class Witness(nn.Module):
    """A model that notes which examples it saw; the first input of an example is its number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.seen: list[list[int]] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen.append([int(number) for number in inputs[:, 0]])
        return self.layer(inputs)


def _batches(*, client: int = 0, round: int = 1, seed: int = 0, **local: Any) -> list[list[int]]:
    data = some_data([8, 8, 8])
    data.inputs[:, 0] = torch.arange(24) % 8
    task = learning_task(made(Witness), data, seed=seed, **{"epochs": 2, "batch_size": 3} | local)
    task.model.module.seen.clear()
    problem = task.problem(Assignment(client, round, 2), buffers=task.model.buffers())
    problem.solve(start=task.model.weights.clone())
    return task.model.module.seen


def test_an_epoch_is_a_permutation_from_the_stream_of_its_round_client_and_epoch() -> None:
    batches = _batches(client=1, round=4, seed=9)
    assert [len(batch) for batch in batches] == [3, 3, 2, 3, 3, 2]
    for epoch in (0, 1):
        order = stream(9, "batches", 4, 1, epoch).permutation(8).tolist()
        assert [number for batch in batches[3 * epoch : 3 * epoch + 3] for number in batch] == order


def test_every_epoch_client_round_and_seed_has_an_order_of_its_own() -> None:
    usual = _batches()
    assert usual[:3] != usual[3:]
    assert usual == _batches()
    for other in ({"client": 1}, {"round": 2}, {"seed": 1}):
        assert _batches(**other) != usual


@pytest.mark.parametrize("batch_size", ["full", 8, 100])
def test_a_full_batch_keeps_the_order_of_the_examples(batch_size: int | str) -> None:
    assert _batches(batch_size=batch_size) == [list(range(8))] * 2


def test_the_order_does_not_depend_on_the_algorithms_terms() -> None:
    data = some_data([8, 8, 8])
    data.inputs[:, 0] = torch.arange(24) % 8
    task = learning_task(made(Witness), data, batch_size=3)
    seen = []
    for terms in ({}, {"dual": torch.ones(15), "rho": 0.5, "centre": torch.ones(15)}):
        task.model.module.seen.clear()
        problem = task.problem(Assignment(0, 1, 1), buffers=task.model.buffers())
        problem.solve(start=torch.zeros(15), **terms)
        seen.append(list(task.model.module.seen))
    assert seen[0] == seen[1]


def _with_dropout(task: LearningTask, *, client: int = 0, round: int = 1) -> torch.Tensor:
    problem = task.problem(Assignment(client, round, 1), buffers=task.model.buffers())
    return problem.gradient(torch.linspace(-1, 1, task.model.weights.numel()))


def _dropout_task(seed: int) -> LearningTask:
    def half() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 3))

    data = some_data([8, 8, 8])
    data.inputs[:], data.targets[:] = data.inputs[:8].repeat(3, 1), data.targets[:8].repeat(3)
    return learning_task(made(half), data, seed=seed)  # all clients hold the same: only dropout tells them apart


def test_dropout_is_repeatable_and_each_clients_own() -> None:
    task = _dropout_task(seed=0)
    usual = _with_dropout(task)
    torch.manual_seed(123)  # whatever else drew from torch's generator
    torch.rand(7)
    assert torch.equal(_with_dropout(task), usual)
    assert not torch.equal(_with_dropout(task, client=1), usual)
    assert not torch.equal(_with_dropout(task, round=2), usual)
    assert not torch.equal(_with_dropout(_dropout_task(seed=1)), usual)


def test_dropout_is_off_in_an_evaluation_and_on_again_after_it() -> None:
    task = _dropout_task(seed=0)
    theta = task.model.weights.clone()
    usual = _with_dropout(task)
    scores = [task.evaluate_client(0, theta, buffers=task.model.buffers()) for _ in range(2)]
    assert scores[0] == scores[1]
    assert torch.equal(_with_dropout(task), usual)


def test_a_model_that_was_handed_over_in_evaluation_mode_trains_with_dropout() -> None:
    task = _dropout_task(seed=0)
    usual = _with_dropout(task)
    task.model.module.eval()
    assert torch.equal(_with_dropout(task), usual)
