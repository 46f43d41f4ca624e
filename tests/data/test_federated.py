import sys

import numpy as np
import pytest
import torch

from fedadmm.core.errors import InputError
from fedadmm.core.seeds import stream
from fedadmm.data import PARTITIONS, federate, load, make_dataset
from fedadmm.data.partition import shards
from fedadmm.data.sources import MNIST, QMNIST


@pytest.fixture(scope="module")
def dataset():
    # Input i holds i, so that an example can be told from the others; its writer is i modulo 7.
    labels = stream(0, "labels").integers(0, 4, 120)
    return make_dataset((np.arange(120.0)[:, None], labels), groups=np.arange(120) % 7)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_clients_hold_every_example_once_with_its_own_target(dataset, partition):
    num_clients = 7 if partition == "natural" else 8
    data = federate(dataset, num_clients=num_clients, partition=partition, seed=0)
    clients = [data.client(index) for index in range(data.num_clients)]
    held = torch.cat([own.inputs for own in clients]).flatten().long()
    assert sorted(held.tolist()) == list(range(120))
    assert torch.equal(torch.cat([own.targets for own in clients]), dataset.train.targets[held])
    assert data.num_examples.tolist() == [len(own.targets) for own in clients]
    assert data.num_examples.dtype == np.int64


def test_a_client_is_a_view():
    data = federate(load("digits"), num_clients=10, seed=0)
    first = data.client(3).inputs
    assert first.untyped_storage().data_ptr() == data.inputs.untyped_storage().data_ptr()


def test_clients_are_those_of_the_partitioner_with_the_stream_of_the_seed(dataset):
    labels = dataset.train.targets.numpy()
    data = federate(dataset, num_clients=5, partition="shards", shards_per_client=3, seed=11)
    expected = shards(labels, num_clients=5, shards_per_client=3, generator=stream(11, "partition"))
    for client, own in enumerate(expected):
        assert data.client(client).inputs.flatten().tolist() == own.tolist()


def test_alpha_reaches_the_dirichlet_partition(dataset):
    spread = [
        federate(dataset, num_clients=4, partition="dirichlet", alpha=alpha, seed=0).num_examples.std()
        for alpha in (0.05, 1e6)
    ]
    assert spread[0] > spread[1]


def test_label_counts_are_those_of_each_client(dataset):
    data = federate(dataset, num_clients=6, partition="dirichlet", seed=0)
    counts = data.label_counts()
    assert counts.shape == (6, 4)
    for client in range(6):
        assert counts[client].tolist() == np.bincount(data.client(client).targets, minlength=4).tolist()


def test_numbers_have_no_label_counts():
    data = federate(make_dataset((np.zeros((4, 1)), np.arange(4) / 2)), num_clients=2, partition="iid", seed=0)
    with pytest.raises(InputError, match="targets are numbers, and label_counts counts classes; use num_examples"):
        data.label_counts()


@pytest.mark.slow
def test_mnist_by_writer_has_539_clients(published):
    dataset = load("mnist", data_dir=published(*MNIST.files, *QMNIST.files))
    data = federate(dataset, num_clients=None, partition="natural", seed=0)
    assert data.num_clients == 539
    assert (data.num_examples.min(), data.num_examples.max(), data.num_examples.sum()) == (19, 131, 60_000)
    with pytest.raises(InputError, match="num_clients=100, but the data has 539 groups"):
        federate(dataset, num_clients=100, partition="natural", seed=0)


def halves(labels, num_clients, generator):
    return np.array_split(generator.permutation(len(labels)), num_clients)


def test_a_users_partition_is_used(dataset, tmp_path, monkeypatch):
    by_function = federate(dataset, num_clients=2, partition=halves, seed=5)
    assert by_function.client(0).inputs.flatten().tolist() == stream(5, "partition").permutation(120)[:60].tolist()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_partition.py").write_text(
        "import numpy as np\ndef deal(labels, m, generator):\n    return np.array_split(np.arange(len(labels)), m)\n"
    )
    by_name = federate(dataset, num_clients=2, partition="own_partition:deal", seed=5)
    assert by_name.client(1).inputs.flatten().tolist() == list(range(60, 120))


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (None, "the partition is of type NoneType; return a list of index arrays"),
        ([np.arange(120)], "the partition has 1 clients, num_clients is 2; make them agree"),
        ([np.arange(120), np.array([])], "leaves client 1 without examples"),
        ([np.arange(60), np.arange(59, 120)], "gives example 59 to 2 clients"),
        ([np.arange(60), np.arange(61, 120)], "gives example 60 to 0 clients"),
        ([np.arange(60), np.arange(60, 121)], "from 0 to 120; use whole numbers from 0 to 119"),
        ([np.arange(60.0), np.arange(60.0, 120.0)], "holds float64 indices"),
    ],
)
def test_a_users_partition_must_give_each_example_to_one_client(dataset, returned, sentence):
    with pytest.raises(InputError, match=sentence):
        federate(dataset, num_clients=2, partition=lambda labels, num_clients, generator: returned, seed=0)


def test_unknown_partitions_and_missing_numbers_are_refused(dataset):
    with pytest.raises(InputError, match="there is no partition 'shard'; use iid, shards, imbalanced"):
        federate(dataset, num_clients=2, partition="shard", seed=0)
    with pytest.raises(InputError, match='"iid" does not settle the number of clients; give num_clients'):
        federate(dataset, num_clients=None, partition="iid", seed=0)
    with pytest.raises(InputError, match="needs to know who made each example"):
        federate(load("digits"), num_clients=None, partition="natural", seed=0)
