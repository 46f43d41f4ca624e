"""Labelled examples as two tensors, whatever they came as."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from fedadmm.core.errors import InputError, calling

Tree = Any  # a tensor, or tuples, lists, dicts and dataclasses of such

IGNORED = -100  # the target that torch's cross entropy leaves out, if it is told no other
_WHOLE = (torch.int16, torch.int32, torch.int64)


class Examples(NamedTuple):
    """Inputs and what a model should make of them."""

    inputs: Tensor  # [example, ...], float32, or int64 for whole numbers such as tokens
    targets: Tensor  # [example, ...], int64 for classes, float32 for numbers


def as_examples(source: Any) -> Examples:
    """Return a pair of tensors or arrays, or any torch Dataset of (input, target), as Examples.

    Inputs of int16, int32 and int64 stay whole numbers, as int64, and all others, such as images of uint8, become
    float32; whole targets int64, other targets float32. An `Examples` keeps the types that it has.
    """
    if isinstance(source, Examples):
        return _checked(source)
    if isinstance(source, TorchDataset):
        source = materialised(source)
    if not isinstance(source, tuple | list) or len(source) != 2:
        raise InputError(f"data of type {type(source).__name__}; give a pair (inputs, targets) or a torch Dataset")
    inputs, targets = (_tensor(part, what=what) for part, what in zip(source, ("inputs", "targets"), strict=True))
    target_type = torch.float32 if targets.is_floating_point() else torch.int64
    input_type = torch.int64 if is_whole(inputs) else torch.float32
    return _checked(Examples(inputs.to(input_type), targets.to(target_type)))


def is_whole(inputs: Tensor) -> bool:
    """Return whether inputs are whole numbers, such as tokens, which are never turned into floats."""
    return inputs.dtype in _WHOLE


def _tensor(part: Any, *, what: str) -> Tensor:
    if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
        # A copy: torch shares an array's memory, and the user may write to it later.
        return torch.from_numpy(part.astype(part.dtype.newbyteorder("=")))
    if isinstance(part, Tensor) and part.layout is not torch.strided:
        raise InputError(f"{what} are sparse ({part.layout}); give {what}.to_dense()")
    if isinstance(part, Tensor) and part.is_complex():
        raise InputError(f"{what} are complex numbers; give torch.view_as_real({what}), two real numbers for each")
    if isinstance(part, Tensor):
        return part.detach()
    kind = f"an array of {part.dtype}" if isinstance(part, np.ndarray) else type(part).__name__
    raise InputError(f"{what} of type {kind}; give a tensor or a numpy array of numbers")


def materialised(dataset: TorchDataset[Any]) -> tuple[Tree, Tree]:
    """Return the inputs and the targets of all items of a dataset."""
    name = type(dataset).__name__
    if not hasattr(dataset, "__len__"):
        raise InputError(f"{name} has no length; give a torch Dataset with __len__ and __getitem__")
    items = []
    for index in range(len(dataset)):
        with calling(f"{name}, read for example {index},"):
            items.append(dataset[index])
    if not items:
        raise InputError(f"{name} is empty; give at least one example")
    inputs, targets = [], []
    for index, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            kind = type(item).__name__
            told = f"a {kind} of {len(item)}" if isinstance(item, tuple | list) else f"of type {kind}"
            raise InputError(f"item {index} of {name} is {told}; return (input, target), or give a collate that does")
        inputs.append(mapped(partial(_item_tensor, what=f"the input of item {index} of {name}"), item[0]))
        targets.append(mapped(partial(_item_tensor, what=f"the target of item {index} of {name}"), item[1]))
    return (
        mapped(lambda *parts: _stacked(parts, what=f"inputs of {name}"), *inputs),
        mapped(lambda *parts: _stacked(parts, what=f"targets of {name}"), *targets),
    )


def _item_tensor(value: Any, *, what: str) -> Tensor:
    if isinstance(value, bool | int | float | np.generic):
        return torch.as_tensor(value)
    if isinstance(value, Tensor | np.ndarray):
        return _tensor(value, what=what)
    raise InputError(f"{what} is of type {type(value).__name__}; turn it into a tensor in the dataset's transform")


def _stacked(tensors: Sequence[Tensor], *, what: str) -> Tensor:
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise InputError(
            f"{what} have different shapes, such as {sorted(shapes)[:2]}; bring them to one shape, or give "
            "make_dataset a collate"
        )
    return torch.stack(tuple(tensors))


def _checked(examples: Examples) -> Examples:
    inputs, targets = examples
    if inputs.ndim == 0 or targets.ndim == 0:
        shapes = f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
        raise InputError(f"inputs and targets have shapes {shapes}; give [example, ...] for both")
    if len(inputs) != len(targets):
        raise InputError(f"{len(inputs)} inputs and {len(targets)} targets; give one target for each input")
    if len(inputs) == 0:
        raise InputError("data with 0 examples; give at least one")
    for part, what in ((inputs, "input"), (targets, "target")):
        check_finite(part, what=what)
    return examples


def check_finite(part: Tensor, *, what: str) -> None:
    """Refuse rows with a NaN or an infinity."""
    if part.is_floating_point() and not torch.isfinite(part.sum()):
        broken = torch.nonzero(~torch.isfinite(part).flatten(1 if part.ndim > 1 else 0))
        if len(broken):
            raise InputError(f"{what} {int(broken[0, 0])} holds a NaN or an infinity; clean the data")


def mapped(function: Callable[..., Any], *trees: Tree) -> Tree:
    """Return what a function makes of the tensors of a tree, in their places; of several trees, those side by side."""
    first = trees[0]
    if isinstance(first, Mapping):
        found = {key: mapped(function, *(tree[key] for tree in trees)) for key in first}
        return found if type(first) is dict or not isinstance(first, dict) else _of_kind(type(first), found)
    if isinstance(first, tuple | list):
        parts = [mapped(function, *some) for some in zip(*trees, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if is_record(first):
        parts = [mapped(function, *(getattr(tree, field.name) for tree in trees)) for field in fields(first)]
        return _with_fields(first, parts)
    return function(*trees)


def cloned(tree: Tree) -> Tree:
    """Return a copy of a tree's tensors, without their histories."""
    return mapped(lambda part: part.detach().clone() if isinstance(part, Tensor) else part, tree)


def is_record(tree: Tree) -> bool:
    """Return whether something is an object of a dataclass, as the outputs of some models are."""
    return is_dataclass(tree) and not isinstance(tree, type)


def _with_fields(record: Any, values: Sequence[Any]) -> Any:
    """Return a copy of a dataclass's object with other fields; it may be frozen, and have an __init__ of its own."""
    other = copy.copy(record)
    for field, value in zip(fields(record), values, strict=True):
        object.__setattr__(other, field.name, value)
    return other


def _of_kind(kind: type[dict[Any, Any]], table: dict[Any, Any]) -> dict[Any, Any]:
    """Return a table as what a user's model returned, whose parts may be attributes, too."""
    try:
        return kind(**table)
    except TypeError:
        return table


def leaves(tree: Tree) -> list[Any]:
    """Return the tensors of a tree."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def num_rows(tree: Tree) -> int:
    """Return the number of examples in a batch."""
    return len(tree) if _lists_examples(tree) else len(leaves(tree)[0])


def _lists_examples(tree: Tree) -> bool:
    """Return whether a batch is a list with an entry for each example, as the boxes of images are."""
    if not isinstance(tree, list) or not tree:
        return False
    lengths = {len(part) if isinstance(part, Tensor) and part.ndim else None for part in tree}
    return None in lengths or len(lengths) > 1


def shapes(tree: Tree) -> Tree:
    """Return the shapes of a tree's tensors, for an error."""
    return mapped(lambda part: tuple(getattr(part, "shape", ())), tree)


def joined_rows(batches: Sequence[Tree]) -> Tree:
    """Return batches as one."""
    if all(map(_lists_examples, batches)):
        return [example for batch in batches for example in batch]
    return mapped(_joined, *batches)


def _joined(*parts: Any) -> Any:
    if not isinstance(parts[0], Tensor):
        return parts[0]
    if parts[0].ndim == 0:  # such as a loss that a model returns beside its outputs
        return torch.stack(parts)
    if len({part.shape[1:] for part in parts}) > 1:
        raise InputError(
            f"batches of shapes {tuple(parts[0].shape)} and others cannot be joined for a metric, which is given all "
            "outputs at once; pad all to one length"
        )
    return torch.cat(parts)
