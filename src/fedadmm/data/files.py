"""Data files: where they are kept, and the digest that each is checked against before it is used."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import platformdirs

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
