"""Datasets in the format of Hugging Face's `datasets`, from local files or its cache, as examples.

A run reads what is on this machine and never asks the hub; `fedadmm data fetch hf:NAME` does that.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedadmm.core.columns import Columns
from fedadmm.core.errors import InputError, calling, near_names
from fedadmm.data.columns import Rows, Ways

PREFIX = "hf:"
FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".arrow": "arrow"}


class Found(NamedTuple):
    """What a dataset has for us: examples, or rows that are read later, and whose each training example is."""

    train: Any
    test: Any
    groups: np.ndarray | None
    num_classes: int | None  # None: as the targets say


def read(name: str, options: Mapping[str, Any]) -> Found:
    """Return the dataset behind "hf:NAME": a file, a folder, or one in the cache of `datasets`."""
    asked = Columns(**options)
    splits = _splits(name, config=asked.config)
    test_name = asked.test or ("test" if "test" in splits else None)
    parts = [_split(splits, split, name=name) for split in (asked.train, test_name) if split is not None]
    rows = [Rows(part, ways := Ways(name, asked, parts)) for part in parts]
    found = rows if asked.lazy else [part.all() for part in rows]
    groups = None
    if asked.groups is not None:
        groups = np.unique(np.asarray(parts[0][asked.groups][:]), return_inverse=True)[1]
    return Found(found[0], found[1] if len(found) > 1 else None, groups, ways.num_classes)


def fetch(name: str) -> dict[str, int]:
    """Let `datasets` bring a dataset of the hub into its cache; return the splits and their sizes."""
    return {split: len(part) for split, part in _splits(name, config=None, offline=False).items()}


def _split(splits: Mapping[str, Any], wanted: str, *, name: str) -> Any:
    if wanted not in splits:
        raise InputError(f'"{name}" has no split {wanted!r}; {near_names(wanted, splits, what="splits")}')
    if len(splits[wanted]) == 0:
        raise InputError(f'split {wanted!r} of "{name}" has no rows; give at least one')
    return splits[wanted]


def _splits(name: str, *, config: str | None, offline: bool = True) -> dict[str, Any]:
    """Return the splits of a dataset by their names."""
    try:
        import datasets
    except ImportError:
        raise InputError(
            f'data "{name}" needs the package datasets, which is not installed; pip install "fedadmm[hf]"'
        ) from None
    place = name.removeprefix(PREFIX)
    path = Path(place).expanduser()
    if not place or (path.is_file() and path.suffix not in FORMATS):
        kinds = ", ".join(FORMATS)
        raise InputError(f'data "{name}" is not a dataset; write hf: and a name, a folder, or a file ({kinds})')
    with _quiet(datasets, offline=offline), calling(f'data "{name}"', remedy="give a dataset that `datasets` can read"):
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            found = datasets.load_from_disk(str(path))
        elif path.is_file():
            found = datasets.load_dataset(FORMATS[path.suffix], data_files=str(path))
        else:
            try:
                found = datasets.load_dataset(str(path) if path.is_dir() else place, config)
            except (ConnectionError, datasets.exceptions.DatasetNotFoundError, FileNotFoundError) as error:
                raise InputError(
                    f'data "{name}": there is no file or folder {place} in {Path.cwd()}, and the cache of `datasets` '
                    f"has none of this name; correct it, or get it from the hub with `fedadmm data fetch {name}`"
                ) from error
    return dict(found) if isinstance(found, dict) else {"train": found}


@contextmanager
def _quiet(datasets: Any, *, offline: bool) -> Iterator[None]:
    """Keep `datasets` from drawing bars while a run begins, and from asking the hub."""
    before, had_bars = datasets.config.HF_HUB_OFFLINE, datasets.are_progress_bars_disabled() is False
    if offline:
        datasets.config.HF_HUB_OFFLINE = True
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
        if had_bars:
            datasets.enable_progress_bars()
