"""Text for a language model: bytes of the standard library's own source files, each file a client's."""

import hashlib
import sysconfig
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fedadmm.core.errors import InputError
from fedadmm.data.examples import Examples

NUM_FILES = 50
LENGTH = 64  # bytes of an example, each with the next byte as its target
SMALLEST, LARGEST = 8 * 1024, 16 * 1024  # bytes of a file: shorter ones are left out, of longer ones the begin is used
HELD_OUT = 0.1  # of each file, its end: the test examples


class Text(NamedTuple):
    """Windows of bytes, and the file that each training example is from."""

    train: Examples
    test: Examples
    files: np.ndarray  # [training example]


def read_text(folder: Path | None = None) -> Text:
    """Return the corpus as examples of LENGTH bytes; `folder` is that of the standard library if None."""
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    owners = []
    for number, content in enumerate(_contents(folder)):
        num_windows = (len(content) - 1) // LENGTH
        codes = np.frombuffer(content, dtype=np.uint8).astype(np.int64)
        places = np.arange(num_windows)[:, None] * LENGTH + np.arange(LENGTH + 1)
        windows, held = codes[places], max(1, round(HELD_OUT * num_windows))
        parts[0].append(windows[:-held])
        parts[1].append(windows[-held:])
        owners.append(np.full(num_windows - held, number))
    train, test = (_next_bytes(np.concatenate(part)) for part in parts)
    return Text(train, test, np.concatenate(owners))


def _next_bytes(windows: np.ndarray) -> Examples:
    codes = torch.from_numpy(windows)
    return Examples(codes[:, :-1].contiguous(), codes[:, 1:].contiguous())


def corpus_digest(folder: Path | None = None) -> str:
    """Return a digest of the corpus: another version of Python has other files."""
    return hashlib.sha256(b"".join(_contents(folder))).hexdigest()[:16]


def _contents(folder: Path | None) -> list[bytes]:
    """Return the first files in the order of their names that are public modules and long enough."""
    folder = folder or Path(sysconfig.get_path("stdlib"))
    files = [path for path in sorted(folder.glob("[a-z]*.py")) if path.stat().st_size >= SMALLEST]
    if len(files) < NUM_FILES:
        raise InputError(
            f"{folder} has {len(files)} source files of {SMALLEST:,} bytes or more, and the text is made of "
            f"{NUM_FILES}; install the standard library's source files, or use text of your own"
        )
    return [path.read_bytes()[:LARGEST] for path in files[:NUM_FILES]]
