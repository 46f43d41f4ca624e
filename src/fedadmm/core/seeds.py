"""Named random streams: the same (seed, purpose, indices) gives the same numbers, whatever ran before."""

import hashlib
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

from fedadmm.core.errors import InputError


def check_seed(seed: object) -> None:
    """Refuse a seed that is not a whole number."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise InputError(f"seed={seed!r} is not a whole number; use one such as 0")


def stream_key(seed: int, purpose: str, *indices: int) -> int:
    """Return 128 bits that belong to this purpose alone."""
    return int.from_bytes(_digest(seed, purpose, indices), "little")


def _digest(seed: int, purpose: str, indices: Iterable[int]) -> bytes:
    name = "/".join([str(seed), purpose, *map(str, indices)])
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return the random stream of a purpose, such as `stream(seed, "batches", round, client, epoch)`."""
    key: Any = _Key(stream_key(seed, purpose, *indices))
    return np.random.Generator(np.random.Philox(key))


def streams(seed: int, purpose: str, names: Iterable[tuple[int, ...]]) -> Iterator[np.random.Generator]:
    """Yield the streams of a purpose, one for each tuple of indices; each lasts until the next is asked for.

    They are `stream`'s, in half of the time: one generator is set to the key of each in turn.
    """
    philox = np.random.Philox(0)
    generator, zeros = np.random.Generator(philox), np.zeros(4, dtype=np.uint64)
    fresh: Any = {"bit_generator": "Philox", "buffer": zeros, "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}
    for indices in names:
        fresh["state"] = {"counter": zeros, "key": np.frombuffer(_digest(seed, purpose, indices), dtype="<u8")}
        philox.state = fresh
        yield generator


class _Key(ISeedSequence):
    """A key of Philox in the place of a seed: given as `key`, numpy would first ask the machine for entropy."""

    def __init__(self, key: int) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: object = None) -> npt.NDArray[np.uint64]:
        """Return the key as it is."""
        return np.array([self._key & 0xFFFF_FFFF_FFFF_FFFF, self._key >> 64], dtype=np.uint64)


def torch_seed(seed: int, purpose: str, *indices: int) -> int:
    """Return a seed for torch's own generator, where torch draws the numbers (initial weights, dropout)."""
    return stream_key(seed, purpose, *indices) & 0x7FFF_FFFF_FFFF_FFFF
