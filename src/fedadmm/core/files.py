"""Files and folders that are there whole or not at all: they are made beside their place, then renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """Give a place beside `path` to write to; what is there takes the place of `path` in the end."""
    partial = path.with_name(f"{path.name}.partial")
    if partial.is_dir():  # a kill left it behind
        shutil.rmtree(partial)
    yield partial
    partial.replace(path)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file; a kill or the loss of power leaves the old one or the new one."""
    with made_whole(path) as partial, partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
