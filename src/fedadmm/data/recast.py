"""The same clients and examples, cast anew: as a problem of two classes, or in another float type."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from fedadmm.core.errors import InputError
from fedadmm.data.examples import Examples
from fedadmm.data.federated import PartitionedData


def two_classes(data: PartitionedData, *, positive: Sequence[int]) -> PartitionedData:
    """Return the data with these classes as class 1 and all others as class 0."""
    known = range(data.num_classes)
    if not all(label in known for label in positive) or not 0 < len(set(positive)) < len(known):
        raise InputError(
            f"positive={list(positive)} does not part {data.num_classes} classes in two; "
            "list some of them, not all, such as [1, 3, 5, 7, 9]"
        )
    chosen = torch.tensor(sorted(set(positive)))
    recast = _recast(data, lambda part: part._replace(targets=torch.isin(part.targets, chosen).long()))
    return replace(recast, num_classes=2)


def in_float_type(data: PartitionedData, float_type: torch.dtype) -> PartitionedData:
    """Return the data with numbers of this type; classes stay classes."""

    def cast(part: torch.Tensor) -> torch.Tensor:
        return part.to(float_type) if part.is_floating_point() else part

    return _recast(data, lambda part: Examples(cast(part.inputs), cast(part.targets)))


def _recast(data: PartitionedData, function: Callable[[Examples], Examples]) -> PartitionedData:
    inputs, targets = function(Examples(data.inputs, data.targets))
    return replace(data, inputs=inputs, targets=targets, test=None if data.test is None else function(data.test))
