"""Changes of a dataset: a validation split, two classes instead of many, another float type."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from fedadmm.core.errors import InputError
from fedadmm.core.seeds import stream
from fedadmm.data.datasets import Dataset
from fedadmm.data.examples import Examples
from fedadmm.data.federated import PartitionedData


def hold_out(dataset: Dataset, *, fraction: float, seed: int) -> Dataset:
    """Return the dataset with this fraction of its training examples in the place of its test examples.

    So what is tuned is never judged on the test examples.
    """
    total = len(dataset.train.targets)
    size = round(fraction * total)
    if not 0 < size < total:
        raise InputError(f"validation={fraction} holds out {size} of {total} examples; use a fraction such as 0.2")
    order = torch.from_numpy(stream(seed, "validation").permutation(total))
    held, kept = order[:size], np.sort(order[size:])
    return dataset._replace(
        train=Examples(dataset.train.inputs[kept], dataset.train.targets[kept]),
        test=Examples(dataset.train.inputs[held], dataset.train.targets[held]),
        groups=None if dataset.groups is None else dataset.groups[kept],
    )


def two_classes(data: PartitionedData, *, positive: Sequence[int]) -> PartitionedData:
    """Return the data with these classes as class 1 and all others as class 0."""
    known = range(data.num_classes)
    if not all(label in known for label in positive) or not 0 < len(set(positive)) < len(known):
        raise InputError(
            f"positive={list(positive)} does not part {data.num_classes} classes in two; "
            "list some of them, not all, such as [1, 3, 5, 7, 9]"
        )
    chosen = torch.tensor(sorted(set(positive)))
    changed = _mapped(data, lambda part: part._replace(targets=torch.isin(part.targets, chosen).long()))
    return replace(changed, num_classes=2)


def in_float_type(data: PartitionedData, float_type: torch.dtype) -> PartitionedData:
    """Return the data with numbers of this type; classes stay classes."""

    def cast(part: torch.Tensor) -> torch.Tensor:
        return part.to(float_type) if part.is_floating_point() else part

    return _mapped(data, lambda part: Examples(cast(part.inputs), cast(part.targets)))


def _mapped(data: PartitionedData, function: Callable[[Examples], Examples]) -> PartitionedData:
    inputs, targets = function(Examples(data.inputs, data.targets))
    return replace(data, inputs=inputs, targets=targets, test=None if data.test is None else function(data.test))
