"""A message as checked bytes, and back: no pickle, and no wrong value is ever returned."""

import json
import zlib
from typing import Any

import torch

from fedadmm.core.algorithm import Message

_TYPES = {
    str(t).removeprefix("torch."): t for t in (torch.float32, torch.float64, torch.bfloat16, torch.int64)
}


class DamagedError(Exception):
    """Bytes that are not what was written."""


def seal(key: bytes, payload: bytes) -> bytes:
    """Return the payload with a checksum over itself and its key."""
    return zlib.crc32(payload, zlib.crc32(key)).to_bytes(4, "little") + payload


def unseal(key: bytes, value: bytes | memoryview) -> memoryview:
    """Return the payload of a sealed value, if it is the one that was sealed under this key."""
    view = memoryview(value)
    if len(view) < 4 or zlib.crc32(view[4:], zlib.crc32(key)) != int.from_bytes(view[:4], "little"):
        raise DamagedError
    return view[4:]


def encode(message: Message, *, float_type: torch.dtype | None = None) -> bytes:
    """Return a message as bytes; `float_type` narrows its float32 vectors."""
    description: list[Any] = []
    parts: list[bytes] = []
    for field in message:
        if isinstance(field, torch.Tensor):
            kept = field.to(float_type) if float_type and field.dtype == torch.float32 else field
            narrowed = kept.dtype != field.dtype
            description.append([str(kept.dtype).removeprefix("torch."), list(kept.shape), narrowed])
            parts.append(kept.contiguous().cpu().view(torch.uint8).numpy().tobytes() if kept.numel() else b"")
        else:
            description.append(field)
    head = json.dumps(description).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *parts])


def decode(payload: bytes | memoryview) -> list[Any]:
    """Return the fields of an encoded message, in memory of their own."""
    view = memoryview(payload)
    start = 4 + int.from_bytes(view[:4], "little")
    fields: list[Any] = []
    for entry in json.loads(bytes(view[4:start])):
        if not isinstance(entry, list):
            fields.append(entry)
            continue
        name, shape, narrowed = entry
        dtype = _TYPES[name]
        stop = start + torch.Size(shape).numel() * dtype.itemsize
        flat = (
            torch.frombuffer(bytearray(view[start:stop]), dtype=dtype)
            if stop > start
            else torch.empty(0, dtype=dtype)
        )
        fields.append((flat.float() if narrowed else flat).view(shape))
        start = stop
    return fields
