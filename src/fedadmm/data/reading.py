"""Data that is read batch by batch: a map-style Dataset of the user's, or tensors in tuples and dicts.

Such examples are rows: their inputs are numbers of rows, until a batch of them is read.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import default_collate

from fedadmm.core.errors import InputError, calling
from fedadmm.data.examples import (
    Examples,
    Tree,
    as_examples,
    check_finite,
    is_whole,
    leaves,
    mapped,
    materialised,
    num_rows,
)

Collate = Callable[[list[Any]], tuple[Tree, Tree]]
PROBED = 8  # items of a dataset that are read to see whether it draws random numbers


class Table(TorchDataset[Any]):
    """Inputs and targets that are tensors in tuples and dicts; a row of each is an example."""

    def __init__(self, inputs: Tree, targets: Tree) -> None:
        self.inputs, self.targets = (mapped(_as_tensor, tree) for tree in (inputs, targets))
        lengths = sorted({len(part) for part in leaves((self.inputs, self.targets))})
        if len(lengths) != 1 or lengths[0] == 0:
            raise InputError(f"inputs and targets have {lengths} rows; give all of them one row for each example")
        for part in leaves((self.inputs, self.targets)):
            check_finite(part, what="example")

    def __len__(self) -> int:
        return num_rows(self.inputs)

    def __getitem__(self, rows: Any) -> tuple[Tree, Tree]:
        return mapped(lambda part: part[rows], (self.inputs, self.targets))


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads batches of rows: those of the training examples come first, those of the test examples follow."""

    parts: tuple[Any, ...]
    collate: Collate
    float_type: torch.dtype = torch.float32

    @property
    def is_lazy(self) -> bool:
        """Whether some examples are not in memory."""
        return not all(isinstance(part, Table) for part in self.parts)

    def read(self, rows: Tensor, *, seed: int) -> tuple[Tree, Tree]:
        """Return the inputs and targets of some rows; what their dataset draws at random is drawn from the seed."""
        numbers, start, part = rows.tolist(), 0, self.parts[0]
        if numbers[0] >= len(part):
            start, part = len(part), self.parts[1]
        if isinstance(part, Table):
            batch = part[rows.cpu() - start]
        else:
            with seeded(seed), calling(f"{type(part).__name__}, read from example {numbers[0] - start} on,"):
                batch = self.collate([part[number - start] for number in numbers])
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise InputError(f"a batch is of type {type(batch).__name__}; return (inputs, targets) from collate")
        return mapped(self._typed, batch[0]), mapped(self._typed, batch[1])

    def _typed(self, part: Any) -> Any:
        return part.to(self.float_type) if isinstance(part, Tensor) and part.is_floating_point() else part


def _states() -> tuple[Any, Any, Tensor]:
    return random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()  # noqa: NPY002


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch, numpy and random draw from a seed, and go on as before afterwards."""
    before = _states()
    # numpy's old generator, as transforms draw from it.
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])


def kept(source: Any, *, lazy: bool | None) -> Examples | Table | TorchDataset[Any]:
    """Return examples in memory, or a dataset that is read batch by batch: if that is asked for, or if it is random."""
    if isinstance(source, TorchDataset):
        if lazy or (lazy is None and is_random(source)):
            return source
        source = materialised(source)
    is_pair = isinstance(source, tuple | list) and len(source) == 2 and not isinstance(source, Examples)
    if is_pair and any(isinstance(part, tuple | list | dict) for part in source):
        return Table(*source)
    return as_examples(source)


def is_random(dataset: TorchDataset[Any]) -> bool:
    """Return whether a dataset draws random numbers; refuse one whose numbers no seed rules."""
    name, size = type(dataset).__name__, len(dataset) if hasattr(dataset, "__len__") else 0
    if not size:
        return False
    items = []
    with calling(f"{name}, read once,"):
        for _ in range(2):
            with seeded(0):
                before, item = _states(), dataset[0]
                for row in range(1, min(PROBED, size)):
                    dataset[row]
                after = _states()
            items.append([np.asarray(part) for part in leaves(item) if isinstance(part, Tensor | np.ndarray)])
    if any(not np.array_equal(one, two) for one, two in zip(*items, strict=True)):
        raise InputError(
            f"item 0 of {name} is another one whenever it is read, and draws from a generator of its own; draw from "
            "torch, numpy.random or random, whose numbers then come from the run's seed"
        )
    drawn = [str(one) != str(two) for one, two in zip(before[:2], after[:2], strict=True)]
    return any(drawn) or not torch.equal(before[2], after[2])


def rows_of(parts: Sequence[Any], *, collate: Collate | None, targets: Any) -> tuple[Reader, list[Examples]]:
    """Return the reader of training and test examples, and both as rows; their targets are what they are dealt by."""
    tables = tuple(Table(*part) if isinstance(part, Examples) else part for part in parts)
    for part in tables:
        if not hasattr(part, "__len__") or len(part) == 0:
            remedy = "at least one example" if hasattr(part, "__len__") else "a Dataset with __len__ and __getitem__"
            raise InputError(f"{type(part).__name__} is empty or has no length; give {remedy}")
    starts = (0, len(tables[0]))
    given = (targets, None)
    rows = [
        Examples(torch.arange(start, start + len(part)), _labels(part, own, is_training=start == 0))
        for part, start, own in zip(tables, starts, given, strict=False)
    ]
    return Reader(tables, collate or default_collate), rows


def _labels(part: Any, given: Any, *, is_training: bool) -> Tensor:
    """Return one class for each example, where that is known or can be read; else [example, 0]."""
    found = given if given is not None else getattr(part, "targets", None)
    if found is None and is_training and isinstance(_target(part, 0), int | np.integer):
        found = [_target(part, row) for row in range(len(part))]
    labels = _one_number_each(found) if isinstance(found, Tensor | np.ndarray | list | tuple) else None
    if labels is not None and len(labels) == len(part):
        return labels if labels.is_floating_point() else labels.long()
    if given is not None:
        raise InputError(f"{len(given)} targets for {len(part)} training examples; give one for each")
    return torch.empty(len(part), 0)


def _one_number_each(found: Any) -> Tensor | None:
    """Return targets as a tensor, None if they are lists, names or the like, by which nothing is dealt."""
    try:
        return found if isinstance(found, Tensor) else torch.from_numpy(np.asarray(found))
    except (TypeError, ValueError):
        return None


def _target(part: Any, row: int) -> Any:
    with seeded(0), calling(f"{type(part).__name__}, read for its targets,"):
        item = part[row]
    target = item[1] if isinstance(item, tuple | list) and len(item) == 2 else None
    return target.item() if isinstance(target, Tensor | np.ndarray) and target.ndim == 0 else target


def _as_tensor(part: Any) -> Tensor:
    """Return a leaf in the type that it has in a batch: whole numbers as int64, bytes as floats, and so on."""
    if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
        part = torch.from_numpy(part.astype(part.dtype.newbyteorder("=")))
    if not isinstance(part, Tensor) or part.is_complex() or part.ndim == 0:
        raise InputError(f"inputs hold a {type(part).__name__}; give tensors or arrays of numbers, [example, ...]")
    if part.dtype == torch.bool:
        return part
    return part.detach().to(torch.int64 if is_whole(part) else torch.float32)
