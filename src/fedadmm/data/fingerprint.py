"""What tells a dataset that is read later from another one, without reading all of it."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from fedadmm.core.errors import name_of
from fedadmm.data.federated import PartitionedData
from fedadmm.data.reading import Reader, Table

SAMPLED = 8  # examples from all over a dataset that are read for the name of a run folder
REMEMBERED = 64  # examples of each part that a run folder remembers a digest of, where not all are in memory
LARGE = 2**30  # bytes of examples in memory, above which some of them stand for all
PLAIN = str | bytes | int | float | complex | PurePath | None


def digest_of_lazy(reader: Reader) -> bytes:
    """Return a digest over what a lazy dataset is made of, its code, and some of its examples.

    It is made of its public attributes: names of files, settings of transforms, arrays. Those that reading changes,
    such as counters and caches, do not count.
    """
    parts = (reader.collate, *(part for part in reader.parts if not isinstance(part, Table)))
    before = set(_pieces(parts))
    found = hashlib.blake2b()
    for tensor in tree_leaves(_samples(reader, SAMPLED)):
        if isinstance(tensor, Tensor):
            found.update(_bytes(tensor))
    for piece in sorted(before & set(_pieces(parts))):
        found.update(piece)
    return found.digest()


def digest_of_examples(data: PartitionedData) -> str:
    """Return a digest over the examples of a federation: all of them, or some from all over what is too large."""
    reader, found = data.reader, hashlib.blake2b(digest_size=8)
    parts = [data, *(part for part in (data.held_out, data.test) if part is not None)]
    trees: list[Any] = [_spread((part.inputs, part.targets)) for part in parts]
    if reader is not None:
        trees += [_spread(tuple(vars(part).values())) for part in reader.parts if isinstance(part, Table)]
        trees += _samples(reader, REMEMBERED)
    for tensor in tree_leaves([*trees, torch.from_numpy(data.offsets)]):
        if isinstance(tensor, Tensor):
            found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(_bytes(tensor))
    return found.hexdigest()


def _spread(tree: Any) -> Any:
    """Return rows from all over tensors that are large, and others as they are."""

    def some(part: Any) -> Any:
        if not isinstance(part, Tensor) or part.nbytes <= LARGE:
            return part
        return part[torch.linspace(0, len(part) - 1, 16 * REMEMBERED).long()]

    return tree_map(some, tree)


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data


def _samples(reader: Reader, count: int) -> list[Any]:
    """Return examples from all over what is not in memory, a few at a time."""
    starts = (0, len(reader.parts[0]))
    return [
        reader.read(rows, seed=0)
        for start, part in zip(starts, reader.parts, strict=False)
        if not isinstance(part, Table)
        for rows in (start + torch.linspace(0, len(part) - 1, count).long().unique()).split(SAMPLED)
    ]


def _pieces(value: Any, path: str = "", seen: tuple[int, ...] = ()) -> Iterator[bytes]:
    """Yield digests of what is in an object, each with its place in it."""

    def piece(content: bytes) -> bytes:
        return hashlib.blake2b(f"{path}:{type(value).__qualname__}:".encode() + content, digest_size=16).digest()

    if isinstance(value, PLAIN) or (isinstance(value, list | tuple) and all(isinstance(one, PLAIN) for one in value)):
        yield piece(repr(value).encode())
    elif isinstance(value, Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        yield piece(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    elif isinstance(value, FunctionType | MethodType):
        yield piece(bytecode_of(value))
        for place, inner in enumerate(cell.cell_contents for cell in getattr(value, "__closure__", None) or ()):
            yield from _pieces(inner, f"{path}({place})", (*seen, id(value)))
    elif id(value) in seen or isinstance(value, type | ModuleType | torch.Generator | np.random.Generator):
        yield piece(b"")
    elif isinstance(value, dict | list | tuple):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _pieces(inner, f"{path}[{key!r}]", (*seen, id(value)))
    else:
        own = [getattr(type(value), name, None) for name in ("__getitem__", "__call__", "forward")]
        yield piece(b"".join(bytecode_of(method) for method in own if isinstance(method, FunctionType)))
        for key, inner in getattr(value, "__dict__", {}).items():
            if not key.startswith("_"):
                yield from _pieces(inner, f"{path}.{key}", (*seen, id(value)))


def bytecode_of(function: Callable[..., Any]) -> bytes:
    """Return the code of a function, of another callable what it prints as."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return repr(function).encode() if isinstance(function, nn.Module) else name_of(function).encode()
    constants = [c for c in code.co_consts if not hasattr(c, "co_code")]
    return code.co_code + repr((code.co_names, constants)).encode()
