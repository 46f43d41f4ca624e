"""Targets of several numbers on a stack, and targets that no stack can have."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm import FedAvg, InputError, LocalTraining, Simulation
from fedadmm.data.examples import Examples
from fedadmm.data.federated import PartitionedData
from fedadmm.training.evaluation import least_squares
from worlds import made, perceptron, some_data

SIZES = [8, 1, 10, 6, 12]
DATA = some_data(SIZES)


def played(data: Any, *, engine: str, loss: Any) -> Simulation:
    local = LocalTraining(epochs=2, batch_size=4, learning_rate=0.1)
    run = Simulation(
        FedAvg(), model=made(perceptron), data=data, local=local, loss=loss, engine=engine, seed=0, participation=1.0
    )
    for _ in range(4):
        run.advance()
    return run


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (functional.cross_entropy, functional.one_hot(DATA.targets, 3) * 0.8 + 0.2 / 3),
        (least_squares, DATA.inputs[:, :3] ** 2),
        (least_squares, DATA.targets),
    ],
    ids=["probabilities", "numbers", "classes"],
)
def test_a_target_of_several_numbers_has_the_gradient_that_it_has_alone(loss: Any, targets: torch.Tensor) -> None:
    data = PartitionedData(DATA.inputs, targets, DATA.offsets, None, 3)
    serial, stacked = (played(data, engine=engine, loss=loss) for engine in ("serial", "stacked"))
    torch.testing.assert_close(stacked.theta, serial.theta, rtol=1e-5, atol=1e-6)


class Clients:
    """A federation that is no table: client 1 has targets that a loss ignores."""

    num_clients, num_classes, test = len(SIZES), 3, None
    num_examples = np.array(SIZES)

    def client(self, client: int) -> Examples:
        """Return one client's examples."""
        inputs, targets = DATA.client(client)
        return Examples(inputs, torch.full_like(targets, -100) if client == 1 else targets)


def test_every_client_of_a_stack_is_looked_at() -> None:
    with pytest.raises(InputError, match='a stack runs losses that ignore or weigh no targets; use engine="workers"'):
        played(Clients(), engine="stacked", loss=nn.CrossEntropyLoss())
    assert played(Clients(), engine="serial", loss=nn.CrossEntropyLoss()).history[-1].refused == ()
