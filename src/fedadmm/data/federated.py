"""A dataset dealt to clients, each of which holds a contiguous slice."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedadmm.core.errors import InputError, import_named
from fedadmm.core.seeds import stream
from fedadmm.data import partition as partitions
from fedadmm.data.datasets import Dataset
from fedadmm.data.examples import Examples
from fedadmm.data.partition import Indices, Partitioner

PARTITIONS = ("iid", "shards", "imbalanced", "dirichlet", "natural")


class FederatedData(Protocol):
    """The data of a federation, client by client."""

    @property
    def num_clients(self) -> int: ...
    @property
    def num_examples(self) -> npt.NDArray[np.int64]: ...
    @property
    def num_classes(self) -> int: ...  # 0 where targets are numbers, not classes
    @property
    def test(self) -> Examples | None: ...

    def client(self, client: int) -> Examples: ...


@dataclass(frozen=True, eq=False)
class PartitionedData:
    """Training examples in the order of their clients, and test examples that belong to nobody."""

    inputs: Tensor  # [example, ...], client after client
    targets: Tensor  # [example]
    offsets: np.ndarray  # [client + 1]: client i holds offsets[i] to offsets[i + 1]
    test: Examples | None
    num_classes: int

    @property
    def num_clients(self) -> int:
        """Return how many clients there are."""
        return len(self.offsets) - 1

    @property
    def num_examples(self) -> np.ndarray:
        """Return how many training examples each client holds."""
        return np.diff(self.offsets)

    def client(self, index: int) -> Examples:
        """Return a client's own examples, as views."""
        assert 0 <= index < self.num_clients, f"client {index} of {self.num_clients}"
        own = slice(self.offsets[index], self.offsets[index + 1])
        return Examples(self.inputs[own], self.targets[own])

    def label_counts(self) -> np.ndarray:
        """Return how many examples of each class each client holds, [client, class]."""
        if self.num_classes == 0:
            raise InputError("targets are numbers, not classes, so there is nothing to count; use whole targets")
        owners = np.repeat(np.arange(self.num_clients), self.num_examples)
        cells = owners * self.num_classes + self.targets.numpy()
        counts = np.bincount(cells, minlength=self.num_clients * self.num_classes)
        return counts.reshape(self.num_clients, self.num_classes)


def federate(
    dataset: Dataset,
    *,
    num_clients: int | None,
    partition: str | Partitioner = "shards",
    seed: int,
    shards_per_client: int = 2,
    alpha: float = 0.5,
) -> PartitionedData:
    """Deal a dataset to clients.

    `partition` is one of PARTITIONS, or a user's function of (labels, num_clients, generator), itself or as
    "package.module:function". Where it settles the number of clients, as "natural" does, num_clients may be None.
    """
    if not isinstance(dataset, Dataset):
        raise InputError(
            f"data of type {type(dataset).__name__} is not a dataset; make one of it: fedadmm.make_dataset(train, test)"
        )
    labels = dataset.train.targets.numpy()
    generator = stream(seed, "partition")
    by_name: dict[Any, Callable[..., Indices]] = {
        "iid": partitions.iid,
        "shards": partial(partitions.shards, shards_per_client=shards_per_client),
        "imbalanced": partitions.imbalanced,
        "dirichlet": partial(partitions.dirichlet, alpha=alpha),
    }
    if partition == "natural":
        indices = partitions.natural(dataset.groups, num_clients=num_clients)
    elif partition in by_name:
        if num_clients is None:
            raise InputError(f'partition "{partition}" does not settle the number of clients; give num_clients')
        indices = by_name[partition](labels, num_clients=num_clients, generator=generator)
    else:
        function = _users_own(partition)
        indices = partitions.checked(
            function(labels, num_clients, generator), num_examples=len(labels), num_clients=num_clients
        )
    order = torch.from_numpy(np.concatenate(indices))
    return PartitionedData(
        inputs=dataset.train.inputs[order],
        targets=dataset.train.targets[order],
        offsets=np.cumsum([0, *map(len, indices)], dtype=np.int64),
        test=dataset.test,
        num_classes=dataset.num_classes,
    )


def _users_own(partition: str | Partitioner) -> Partitioner:
    if not isinstance(partition, str):
        return partition
    if ":" not in partition:
        choices = ", ".join(PARTITIONS)
        raise InputError(f'there is no partition {partition!r}; use {choices} or "package.module:function"')
    function: Partitioner = import_named(partition, what="partition")
    return function
