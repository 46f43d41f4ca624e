"""Small federations on which the laws are tried: quadratics, and a network with buffers and dropout."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedadmm.data.examples import Examples
from fedadmm.data.federated import PartitionedData
from fedadmm.studies.laws.play import NUM_CLIENTS, World, quadratic_world
from fedadmm.training.evaluation import accuracy
from fedadmm.training.local import LocalTraining
from fedadmm.training.task import LearningTask

__all__ = [
    "NUM_CLIENTS",
    "WORLDS",
    "World",
    "learning_task",
    "made",
    "network",
    "network_world",
    "perceptron",
    "quadratic_world",
    "solvers_world",
    "some_data",
]


def network() -> nn.Module:
    """Return a perceptron with dropout, and batch normalisation's buffers: two running statistics and a counter."""
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 3))


def perceptron() -> nn.Module:
    """Return a network without buffers, which every engine and every method can run."""
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def some_data(num_examples: Sequence[int], *, seed: int = 0, features: int = 4) -> PartitionedData:
    """Return clients with so many examples of three classes each; their classes differ from client to client."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(num_examples)
    owners = torch.repeat_interleave(torch.arange(len(num_examples)), torch.tensor(num_examples))
    return PartitionedData(
        inputs=torch.randn(total, features, generator=generator) + owners[:, None] * 0.3,
        targets=(owners + torch.randint(0, 2, (total,), generator=generator)) % 3,
        offsets=np.cumsum([0, *num_examples]),
        test=Examples(torch.randn(20, features, generator=generator), torch.arange(20) % 3),
        num_classes=3,
    )


def made(make: Callable[[], nn.Module], *, seed: int = 0) -> nn.Module:
    """Return a module with weights drawn from a seed, and torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's alone: torch.manual_seed takes a millisecond
        return make()


def learning_task(module: nn.Module, data: PartitionedData, *, seed: int = 0, **local: Any) -> LearningTask:
    """Return a task of cross entropy."""
    settings = LocalTraining(**{"epochs": 1, "batch_size": 6, "learning_rate": 0.1} | local)
    return LearningTask(
        module, data, local=settings, loss=functional.cross_entropy, metrics={"accuracy": accuracy}, seed=seed
    )


def network_world(**local: Any) -> World:
    """Return clients that train a network on unequal numbers of examples."""
    data = some_data([8, 10, 6, 12, 8])
    task = learning_task(made(network), data, **local)
    return World(
        task,
        task.model.weights.clone(),
        task.model.buffers(),
        lambda client: data.client(client).inputs.fill_(torch.nan),
    )


def solvers_world() -> World:
    """Return the same clients, each with a solver, whose accuracy is asked for and reached by some."""
    return network_world(solver=["lbfgs", "gd", "sgd", "lbfgs", "gd"], tolerance=0.5, max_steps=3)


WORLDS: dict[str, Callable[[], World]] = {
    "quadratics": quadratic_world,
    "network": network_world,
    "solvers": solvers_world,
}
