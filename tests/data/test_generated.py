"""Data made client by client is a federation like any other, and costs nothing for those who are not asked."""

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from fedadmm.algorithms import FedADMM
from fedadmm.api.simulate import simulate
from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.data import Examples, federate, load
from fedadmm.data.generated import GeneratedData, synthetic
from fedadmm.runs.assembly import data_of
from fedadmm.runs.simulation import Simulation
from fedadmm.training.local import LocalTraining
from play import identical


def _pair(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((3, 2), float(client)), torch.arange(3) % 2


def test_a_client_holds_what_the_function_makes_of_its_id() -> None:
    data = GeneratedData(_pair, num_clients=10, num_classes=2)
    assert data.num_clients == 10
    assert data.client(7).inputs.tolist() == [[7.0, 7.0]] * 3
    assert data.num_examples.tolist() == [3] * 10
    assert data.test is None


def test_the_function_is_asked_for_the_active_clients_only() -> None:
    asked: list[int] = []

    def function(client: int) -> Any:
        asked.append(client)
        return _pair(client)

    data = GeneratedData(function, num_clients=1000, num_classes=2)
    result = simulate(FedADMM(), model="softmax_regression", data=data, rounds=2, participation=0.003, engine="serial")
    active = {client for record in result.history for client in record.clients}
    assert set(asked) == active | {0}  # client 0 shows what examples look like


def test_it_trains_as_the_same_data_in_tensors_does() -> None:
    dealt = federate(load("digits"), num_clients=20, partition="imbalanced", seed=0)
    made = GeneratedData(dealt.client, num_clients=20, num_classes=10, num_examples=dealt.num_examples, test=dealt.test)
    thetas = [
        simulate(
            FedADMM(),
            model="mlp",
            data=data,
            rounds=3,
            weighting="examples",
            local=LocalTraining(epochs="1..2"),
            engine="serial",
        ).theta
        for data in (dealt, made)
    ]
    assert identical(*thetas)


def test_unequal_clients_need_their_numbers() -> None:
    data = GeneratedData(lambda c: (torch.ones(c + 1, 2), torch.zeros(c + 1).long()), num_clients=3, num_classes=2)
    with pytest.raises(InputError, match="client 2 has 3 examples, and 1 were expected; give num_examples"):
        data.client(2)
    with pytest.raises(InputError, match="num_examples lists 2 numbers for 3 clients"):
        GeneratedData(_pair, num_clients=3, num_classes=2, num_examples=[3, 3])
    with pytest.raises(InputError, match="num_clients=0"):
        GeneratedData(_pair, num_clients=0, num_classes=2)


def test_synthetic_clients_are_the_same_whenever_asked_and_differ_from_each_other() -> None:
    data = synthetic(num_clients=1_000_000, seed=1)
    first, again = data.client(999_999), data.client(999_999)
    assert identical(tuple(first), tuple(again))
    assert not torch.equal(first.inputs, data.client(5).inputs)
    assert not torch.equal(first.inputs, synthetic(num_clients=1_000_000, seed=2).client(999_999).inputs)
    # A client's examples do not depend on how many others there are.
    assert identical(tuple(data.client(5)), tuple(synthetic(num_clients=10, seed=1).client(5)))
    assert identical(tuple(pickle.loads(pickle.dumps(data)).client(5)), tuple(data.client(5)))
    counts = [np.bincount(data.client(c).targets.numpy(), minlength=10) for c in range(50)]
    assert np.std(counts, axis=0).mean() > 1.5  # far from the same labels everywhere


@pytest.mark.slow
def test_a_million_registered_clients_take_no_memory_of_their_own() -> None:
    def peak(num_clients: int) -> int:
        tracemalloc.start()
        simulation = Simulation(
            FedADMM(),
            model="softmax_regression",
            data=synthetic(num_clients=num_clients, seed=0),
            local=LocalTraining(),
            participation=20 / num_clients,
            seed=0,
            engine="serial",
        )
        simulation.advance()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(10_000)
    assert peak(1_000_000) < peak(10_000) + 100_000  # a byte a client would already be ten times that


def test_an_experiment_may_name_synthetic_data() -> None:
    experiment = Experiment(data={"name": "synthetic", "num_clients": 50, "partition": "natural"})
    assert data_of(experiment).num_clients == 50
    for changes in ({"partition": "shards"}, {"num_clients": None}, {"normalisation": "none"}):
        table = {"name": "synthetic", "num_clients": 50, "partition": "natural"} | changes
        with pytest.raises(InputError, match='data "synthetic"'):
            data_of(Experiment(data=table))


def test_data_that_does_not_say_how_many_classes_it_has_is_refused() -> None:
    class Unsaid:
        num_clients, num_examples, test = 2, np.array([3, 3]), None

        def client(self, client: int) -> Examples:
            return Examples(torch.rand(3, 4), torch.tensor([0, 1, 2]))

    with pytest.raises(InputError, match="Unsaid has no num_classes; give it the number of classes, or 0 where"):
        simulate(FedADMM(), model="mlp", data=Unsaid(), rounds=1, participation=1.0)
    ready = torch.nn.Linear(4, 3)  # its last layer says it
    assert (
        len(simulate(FedADMM(), model=ready, data=Unsaid(), rounds=1, participation=1.0, engine="serial").history) == 1
    )
