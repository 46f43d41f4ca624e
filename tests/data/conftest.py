"""Tiny data of our own, for the tests."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from fedadmm.data.files import DataFile
from fedadmm.data.sources import Origin, Source


def idx(array: np.ndarray) -> bytes:
    """Return an array of bytes or 32-bit numbers as the content of an idx file."""
    code = {1: 0x08, 4: 0x0C}[array.dtype.itemsize]
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


class TinySource:
    """Two training images and one test image of 2x2, which tests put where they like."""

    def __init__(self) -> None:
        self.train_images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
        arrays = {
            "train-images": self.train_images,
            "train-labels": np.array([3, 1], dtype=np.uint8),
            "test-images": np.full((1, 2, 2), 255, dtype=np.uint8),
            "test-labels": np.array([2], dtype=np.uint8),
        }
        self.contents = {name: idx(array) for name, array in arrays.items()}

    def source(self, *origins: Origin) -> Source:
        """Return the source with the digests of these contents."""
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in self.contents.items()}
        return Source("tiny", tuple(DataFile(f"Tiny/raw/{name}", digests[name]) for name in digests), origins)

    def write(self, folder: Path) -> None:
        """Write the files unpacked."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)

    def write_gzipped(self, folder: Path) -> None:
        """Write the files gzipped."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.contents.items():
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))


@pytest.fixture
def tiny() -> TinySource:
    """Return a source small enough to write."""
    return TinySource()
