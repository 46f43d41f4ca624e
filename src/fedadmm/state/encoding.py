"""A message as checked bytes, and back: no pickle, and no wrong value is ever returned."""

import json
import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from fedadmm.core.algorithm import Message

Bytes: TypeAlias = bytes | memoryview

_KINDS = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8)
_TYPES = {str(kind).removeprefix("torch."): kind for kind in _KINDS}


class DamagedError(Exception):
    """Bytes that are not what was written."""


def seal(key: bytes, *parts: Bytes) -> bytes:
    """Return the parts as one value, with a checksum over them and their key."""
    checksum = zlib.crc32(key)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([checksum.to_bytes(4, "little"), *parts])


def unseal(key: bytes, value: bytes | memoryview) -> memoryview:
    """Return what was sealed, if it was sealed under this key."""
    view = memoryview(value)
    if len(view) < 4 or zlib.crc32(view[4:], zlib.crc32(key)) != int.from_bytes(view[:4], "little"):
        raise DamagedError
    return view[4:]


def narrowed(field: Any, float_type: torch.dtype | None) -> Any:
    """Return a field of a state as it is kept: float32 vectors in `float_type`, the rest as it is."""
    if float_type and isinstance(field, torch.Tensor) and field.dtype == torch.float32:
        return field.to(float_type)
    return field


def encode(message: Sequence[Any], *, float_type: torch.dtype | None = None) -> list[Bytes]:
    """Return a message as parts, which share memory with it; `float_type` narrows its float32 vectors."""
    description: list[Any] = []
    parts: list[Bytes] = []
    for field in message:
        if isinstance(field, torch.Tensor):
            kept = narrowed(field, float_type)
            description.append([str(kept.dtype).removeprefix("torch."), list(kept.shape), kept.dtype != field.dtype])
            parts.append(kept.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
        else:
            description.append(field)
    head = json.dumps(description).encode()
    return [len(head).to_bytes(4, "little"), head, *parts]


def decode(payload: bytes | memoryview) -> Message:
    """Return the fields of an encoded message, in memory of their own."""
    view = memoryview(payload)
    start = 4 + int.from_bytes(view[:4], "little")
    fields: list[Any] = []
    for entry in json.loads(bytes(view[4:start])):
        if not isinstance(entry, list):
            fields.append(entry)
            continue
        name, shape, was_float32 = entry
        dtype = _TYPES[name]
        stop = start + torch.Size(shape).numel() * dtype.itemsize
        own = bytearray(view[start:stop])
        flat = torch.frombuffer(own, dtype=dtype) if own else torch.empty(0, dtype=dtype)
        fields.append((flat.float() if was_float32 else flat).view(shape))
        start = stop
    return tuple(fields)
