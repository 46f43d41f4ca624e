"""Getting a dataset's files: from one origin after the other, and into place only when every digest is right."""

import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from fedadmm.core.errors import InputError
from fedadmm.data.files import DamagedFileError, DataFile, data_folder, present, verified_content
from fedadmm.data.sources import SOURCES, Origin, OriginError, Source


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
