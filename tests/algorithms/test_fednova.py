"""FedNova: clients that take more steps pull no harder."""

from typing import Any

import pytest
import torch

from fedadmm.algorithms import FedAvg, FedNova
from fedadmm.core.round import Assignment
from play import Play
from quadratics import heterogeneous

NUM_CLIENTS = 3
NUM_STEPS = (1, 2, 9)
RATE = 0.01


class _UnequalSteps:
    """Quadratics whose clients take 1, 2 and 9 local steps."""

    def __init__(self) -> None:
        self._tasks = [heterogeneous(NUM_CLIENTS, 3, num_steps=n, learning_rate=RATE) for n in NUM_STEPS]

    def problem(self, assignment: Assignment, **how: Any) -> Any:
        return self._tasks[assignment.client].problem(assignment, **how)


def _end(algorithm: Any) -> torch.Tensor:
    theta = torch.zeros(3).double()
    play = Play(algorithm, _UnequalSteps(), theta, num_clients=NUM_CLIENTS)
    return play.rounds([range(NUM_CLIENTS)] * 500).theta


def test_the_effective_tau_is_the_mean_of_the_clients() -> None:
    play = Play(FedNova(), _UnequalSteps(), torch.zeros(3).double(), num_clients=3, weights=(1, 1, 2))
    visits = play.visits(range(NUM_CLIENTS))
    assert [visit.upload.tau for visit in visits] == [1.0, 2.0, 9.0]
    d = sum(w * visit.upload.d for w, visit in zip((1, 1, 2), visits, strict=True)) / 4
    tau = (1 + 2 + 2 * 9) / 4
    torch.testing.assert_close(play.rounds([range(NUM_CLIENTS)]).theta, tau * d)


@pytest.mark.slow
def test_fednova_ends_at_the_minimiser_and_fedavg_where_the_steps_pull_it() -> None:
    # With a small learning rate FedAvg minimises the sum of tau_i f_i, and FedNova the sum of the f_i.
    clients = heterogeneous(NUM_CLIENTS, 3)
    minimiser, pulled = clients.minimiser(), clients.minimiser([float(n) for n in NUM_STEPS])
    assert float((minimiser - pulled).norm()) > 1.0
    assert float((_end(FedNova()) - minimiser).norm()) < 0.1
    assert float((_end(FedAvg()) - pulled).norm()) < 0.1


def test_with_equal_steps_fednova_is_fedavg() -> None:
    task = heterogeneous(5, 3, num_steps=4, learning_rate=0.2)
    ours, theirs = (
        Play(method, task, torch.ones(3).double(), num_clients=5).rounds([[0, 1, 3], [2, 4]])
        for method in (FedNova(eta=0.5), FedAvg(eta=0.5))
    )
    torch.testing.assert_close(ours.theta, theirs.theta, rtol=1e-12, atol=1e-12)
