"""A dataset dealt to clients, each of which holds a contiguous slice, and changes of it.

These are a validation split, two classes instead of many, and another float type.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedadmm.core.calls import checked_call
from fedadmm.core.errors import InputError, calling, import_named, name_of
from fedadmm.core.seeds import check_seed, stream
from fedadmm.data import partition as partitions
from fedadmm.data.datasets import Dataset
from fedadmm.data.examples import IGNORED, Examples, Tree
from fedadmm.data.partition import Indices, Partitioner
from fedadmm.data.reading import Reader
from fedadmm.data.shown import Shown

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


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedData(Shown):
    """Training examples in the order of their clients, and test examples that belong to nobody."""

    inputs: Tensor  # [example, ...], client after client
    targets: Tensor  # [example, ...]
    offsets: np.ndarray  # [client + 1]: client i holds offsets[i] to offsets[i + 1]
    test: Examples | None
    num_classes: int
    held_out: "PartitionedData | None" = None  # examples of each client that it is scored on, and does not train on
    reader: Reader | None = None  # where examples are rows that are read batch by batch

    @property
    def num_clients(self) -> int:
        """Return how many clients there are."""
        return len(self.offsets) - 1

    @cached_property
    def num_examples(self) -> np.ndarray:
        """Return how many training examples each client holds."""
        return np.diff(self.offsets)

    def client(self, index: int) -> Examples:
        """Return a client's own examples, as views."""
        if not 0 <= index < self.num_clients:
            raise InputError(f"there is no client {index}; use a number from 0 to {self.num_clients - 1}")
        own = slice(self.offsets[index], self.offsets[index + 1])
        return Examples(self.inputs[own], self.targets[own])

    def label_counts(self) -> np.ndarray:
        """Return how many targets of each class each client holds, [client, class]."""
        if self.num_classes == 0:
            raise InputError("targets are numbers, and label_counts counts classes; use num_examples, or plot()")
        targets = self.targets.numpy().reshape(len(self.targets), -1)
        owners = np.repeat(np.arange(self.num_clients), self.num_examples)[:, None]
        cells = (owners * self.num_classes + targets)[targets != IGNORED]
        counts = np.bincount(cells, minlength=self.num_clients * self.num_classes)
        return counts.reshape(self.num_clients, self.num_classes)


@checked_call
def federate(
    dataset: Dataset,
    *,
    num_clients: int | None,
    partition: str | Partitioner = "shards",
    seed: int,
    shards_per_client: int = 2,
    alpha: float = 0.5,
    quantiles: int | None = None,
    client_test: float | None = None,
    validation: float | None = None,
) -> PartitionedData:
    """Deal a dataset to clients.

    `partition` is one of PARTITIONS, or a user's function of (labels, num_clients, generator), itself or as
    "package.module:function". Where it settles the number of clients, as "natural" does, num_clients may be None.
    Targets that are numbers are dealt as if each of this many `quantiles` were a class.
    `client_test` is the share of each client's examples that it is scored on, and does not train on. `validation` is
    the share of the training examples that takes the place of the test examples, and with `client_test` that of each
    client's: so what is tuned is never judged on what a run is judged on.
    """
    if not isinstance(dataset, Dataset):
        raise InputError(
            f"data of type {type(dataset).__name__} is not a dataset; make one of it: fedadmm.make_dataset(train, test)"
        )
    check_seed(seed)
    if validation is not None and client_test is None:
        dataset = hold_out(dataset, fraction=validation, seed=seed)
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
        if partition != "iid":
            labels = _classes(labels, partition=partition, quantiles=quantiles)
        if num_clients is None:
            raise InputError(f'partition "{partition}" does not settle the number of clients; give num_clients')
        indices = by_name[partition](labels, num_clients=num_clients, generator=generator)
    else:
        function = _users_own(partition)
        with calling(f"partition {name_of(function)}, called with (labels, num_clients, generator),"):
            dealt = function(labels, num_clients, generator)
            indices = partitions.checked(dealt, num_examples=len(labels), num_clients=num_clients)
    if client_test is None:
        return _dealt(dataset, indices)
    kept, held = _split_each(indices, client_test, seed=seed, key="client_test")
    if validation is None:
        return replace(_dealt(dataset, kept), held_out=replace(_dealt(dataset, held), test=None))
    kept, held = _split_each(kept, validation, seed=seed, key="validation")
    held_out = replace(_dealt(dataset, held), test=None)
    return replace(_dealt(dataset, kept), held_out=held_out, test=Examples(held_out.inputs, held_out.targets))


def _dealt(dataset: Dataset, indices: Indices) -> PartitionedData:
    order, offsets = torch.from_numpy(np.concatenate(indices)), np.cumsum([0, *map(len, indices)], dtype=np.int64)
    inputs, targets = dataset.train.inputs[order], dataset.train.targets[order]
    return PartitionedData(inputs, targets, offsets, dataset.test, dataset.num_classes, reader=dataset.reader)


def _split_each(indices: Indices, fraction: float, *, seed: int, key: str) -> tuple[Indices, Indices]:
    """Return what each client trains on, and what it is scored on."""
    chosen = [chosen_of(len(own), fraction, client=client, seed=seed, key=key) for client, own in enumerate(indices)]
    pairs = list(zip(indices, chosen, strict=True))
    return [own[~held] for own, held in pairs], [own[held] for own, held in pairs]


def chosen_of(
    num_examples: int, fraction: float, *, client: int, seed: int, key: str = "client_test"
) -> npt.NDArray[np.bool_]:
    """Return which of a client's examples it is scored on: at least one, unless it has a single example."""
    _check_share(key, fraction)
    size = min(max(1, round(fraction * num_examples)), num_examples - 1)
    return stream(seed, f"client_{key.removeprefix('client_')}", client).permutation(num_examples) < size


def _check_share(key: str, fraction: float) -> None:
    if not 0 < fraction < 1:
        raise InputError(f"{key}={fraction} is out of range; use a number above 0 and below 1, such as 0.2")


def _classes(labels: np.ndarray, *, partition: Any, quantiles: int | None) -> np.ndarray:
    """Return one class an example, by which a partition deals."""
    if labels.ndim > 1 and labels[0].size == 1:
        labels = labels.reshape(-1)
    if labels.ndim > 1:
        by = "one class" if quantiles is None else "quantiles of one number"
        raise InputError(
            f'partition "{partition}" deals by {by} an example, and targets have shape {labels.shape[1:]}; '
            'use "iid", "natural" with groups, or a function of your own'
        )
    if labels.dtype.kind != "f":
        return labels
    if quantiles is None:
        raise InputError(
            f'partition "{partition}" deals by class, and targets are numbers; give quantiles, such as 10, to deal by '
            'their quantiles, or use "iid"'
        )
    if quantiles < 2:
        raise InputError(f"quantiles={quantiles} is out of range; use a whole number from 2 on, such as 10")
    return partitions.by_quantile(labels, quantiles)


def _users_own(partition: str | Partitioner) -> Partitioner:
    if not isinstance(partition, str):
        return partition
    if ":" not in partition:
        choices = ", ".join(PARTITIONS)
        raise InputError(f'there is no partition {partition!r}; use {choices} or "package.module:function"')
    function: Partitioner = import_named(partition, what="partition")
    return function


def hold_out(dataset: Dataset, *, fraction: float, seed: int) -> Dataset:
    """Return the dataset with this fraction of its training examples in the place of its test examples.

    So what is tuned is never judged on the test examples.
    """
    total = len(dataset.train.targets)
    _check_share("validation", fraction)
    size = round(fraction * total)
    if not 0 < size < total:
        raise InputError(f"validation={fraction} holds out {size} of {total} examples; use a fraction such as 0.2")
    order = torch.from_numpy(stream(seed, "validation").permutation(total))
    held, kept = order[:size], np.sort(order[size:])
    train, test = (Examples(*(part[rows] for part in dataset.train)) for rows in (kept, held))
    groups = None if dataset.groups is None else dataset.groups[kept]
    return dataset._replace(train=train, test=test, groups=groups)


def two_classes(data: PartitionedData, *, positive: Sequence[int]) -> PartitionedData:
    """Return the data with these classes as class 1 and all others as class 0."""
    if data.reader is not None:
        raise InputError(f"positive={list(positive)} changes targets, which are read later; change them in the dataset")
    known = range(data.num_classes)
    if not all(label in known for label in positive) or not 0 < len(set(positive)) < len(known):
        raise InputError(
            f"positive={list(positive)} does not part {data.num_classes} classes in two; "
            "list some of them, not all, such as [1, 3, 5, 7, 9]"
        )
    chosen = torch.tensor(sorted(set(positive)))
    changed = _mapped(data, lambda part: part._replace(targets=torch.isin(part.targets, chosen).long()))
    return replace(changed, num_classes=2)


def check_flippable(data: FederatedData) -> None:
    """Refuse data whose classes cannot be exchanged here."""
    if not isinstance(data, PartitionedData) or data.reader is not None or not data.num_classes:
        raise InputError(
            "label_flip exchanges classes, and these targets are numbers, or are read or made later; use another attack"
        )


def flipped(data: Any, clients: Collection[int]) -> Any:
    """Return the data with the classes of some clients in reverse order: c becomes C - 1 - c."""
    check_flippable(data)
    rows = np.isin(np.repeat(np.arange(data.num_clients), data.num_examples), list(clients))
    changed = torch.from_numpy(rows).view(-1, *[1] * (data.targets.ndim - 1)) & (data.targets != IGNORED)
    return replace(data, targets=torch.where(changed, data.num_classes - 1 - data.targets, data.targets))


def in_float_type(data: Any, float_type: torch.dtype) -> Any:
    """Return the data with numbers of this type; classes stay classes, and data made client by client as it is."""
    if not isinstance(data, PartitionedData):
        return data

    def cast(part: torch.Tensor) -> torch.Tensor:
        return part.to(float_type) if part.is_floating_point() else part

    reader = None if data.reader is None else replace(data.reader, float_type=float_type)
    return replace(_mapped(data, lambda part: Examples(cast(part.inputs), cast(part.targets))), reader=reader)


def first_example(data: FederatedData) -> tuple[Tree, Tree]:
    """Return the inputs and the targets of one example, [1, ...]."""
    reader, own = getattr(data, "reader", None), data.client(0)
    return (own.inputs[:1], own.targets[:1]) if reader is None else reader.read(own.inputs[:1], seed=0)


def _mapped(data: PartitionedData, function: Callable[[Examples], Examples]) -> PartitionedData:
    inputs, targets = function(Examples(data.inputs, data.targets))
    test = None if data.test is None else function(data.test)
    held_out = None if data.held_out is None else _mapped(data.held_out, function)
    return replace(data, inputs=inputs, targets=targets, test=test, held_out=held_out)
