"""Named random streams: the same (seed, purpose, indices) gives the same numbers, whatever ran before."""

import hashlib

import numpy as np


def stream_key(seed: int, purpose: str, *indices: int) -> int:
    """Return 128 bits that belong to this purpose alone."""
    name = "/".join([str(seed), purpose, *map(str, indices)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "little")


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return the random stream of a purpose, such as `stream(seed, "batches", round, client, epoch)`."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, purpose, *indices)))


def torch_seed(seed: int, purpose: str, *indices: int) -> int:
    """Return a seed for torch's own generator, where torch draws the numbers (initial weights, dropout)."""
    return stream_key(seed, purpose, *indices) & 0x7FFF_FFFF_FFFF_FFFF
