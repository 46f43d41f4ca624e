"""A message as checked bytes, and back: no pickle, and no wrong value is ever returned."""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
import xxhash

from fedadmm.core.algorithm import Message

Bytes: TypeAlias = bytes | memoryview

_KINDS = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8)
_TYPES = {str(kind).removeprefix("torch."): kind for kind in _KINDS}


class DamagedError(Exception):
    """Bytes that are not what was written."""


class Checksum(NamedTuple):
    """A checksum, and how many bytes it has."""

    of: Callable[[Iterable[Bytes]], bytes]  # of parts, as if they were one
    size: int


def _crc32(parts: Iterable[Bytes]) -> bytes:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum.to_bytes(4, "little")


def _xxh3(parts: Iterable[Bytes]) -> bytes:
    checksum = xxhash.xxh3_64()
    for part in parts:
        checksum.update(part)
    return checksum.digest()


CRC32 = Checksum(_crc32, 4)
XXH3 = Checksum(_xxh3, 8)  # of states, as it is much faster


def seal(key: bytes, *parts: Bytes, checksum: Checksum = CRC32) -> bytes:
    """Return the parts as one value, with a checksum over them and their key."""
    return b"".join([checksum.of((key, *parts)), *parts])


def unseal(key: bytes, value: Bytes, *, checksum: Checksum = CRC32) -> memoryview:
    """Return what was sealed, if it was sealed under this key."""
    view, size = memoryview(value), checksum.size
    if len(view) < size or checksum.of((key, view[size:])) != view[:size]:
        raise DamagedError
    return view[size:]


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
            parts.append(_bytes_of(kept.contiguous().cpu().reshape(-1)))
        else:
            description.append(field)
    head = json.dumps(description).encode()
    return [len(head).to_bytes(4, "little"), head, *parts]


def decode(payload: Bytes) -> Message:
    """Return the fields of an encoded message, in memory of their own."""
    return decode_pieces(iter([payload]))


def decode_pieces(pieces: Iterator[Bytes]) -> Message:
    """Return the fields of an encoded message that comes in pieces; the first has all of its description."""
    rest = memoryview(next(pieces))
    start = 4 + int.from_bytes(rest[:4], "little")
    description, rest = json.loads(bytes(rest[4:start])), rest[start:]
    fields: list[Any] = []
    for entry in description:
        if not isinstance(entry, list):
            fields.append(entry)
            continue
        name, shape, was_float32 = entry
        flat = torch.empty(torch.Size(shape).numel(), dtype=_TYPES[name])
        room = _bytes_of(flat)
        while len(room):
            if not rest:
                rest = memoryview(next(pieces))
            taken = min(len(room), len(rest))
            room[:taken], room, rest = rest[:taken], room[taken:], rest[taken:]
        fields.append((flat.float() if was_float32 else flat).view(shape))
    return tuple(fields)


def in_pieces(parts: Iterable[Bytes], size: int) -> Iterator[list[Bytes]]:
    """Yield the parts, cut so that each piece but the last has this many bytes."""
    piece: list[Bytes] = []
    room = size
    for part in parts:
        rest = memoryview(part)
        while len(rest):
            piece.append(rest[:room])
            rest, room = rest[room:], room - len(piece[-1])
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece


def _bytes_of(vector: torch.Tensor) -> memoryview:
    """Return the memory of a vector."""
    return vector.view(torch.uint8).numpy().data
