"""Files and folders that are there whole or not at all, and the nested tables that TOML files hold."""

import os
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedadmm.core.errors import InputError

Table = dict[str, Any]

UNHASHED = (  # keys of an experiment that do not change round t
    "name", "label", "rounds", "target", "direction", "stop_at_target", "patience", "evaluate_every", "engine",
    "workers", "certificate",
)  # fmt: skip
OWN_KEYS = {"shards_per_client": {"shards"}, "alpha": {"dirichlet"}}  # of [data]: the partitions that use them


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


@contextmanager
def private_files() -> Iterator[None]:
    """Let what is made meanwhile, here and by processes that are started, be its owner's alone: 0600 in 0700."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def dotted(table: Table, prefix: str = "") -> Table:
    """Return nested tables as one with dotted keys, the algorithm's name first: it clears its other keys.

    A schedule or a distribution is one value, though it is written as a table.
    """
    found: Table = {}
    for key, value in sorted(table.items(), key=lambda item: item[0] != "name"):
        nested = isinstance(value, dict) and not {"schedule", "distribution"} & value.keys()
        found |= dotted(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def without_none(table: Table, *, own: bool = False) -> Table:
    """Return a table without what is None or empty; own: in the options of a user's function, where {} is a value."""
    return {
        key: without_none(value, own=own or key == "options") if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None and (own or value != {})
    }


def used_keys(data: Table) -> Table:
    """Return the table [data] without the keys that only other partitions use."""
    partition = data.get("partition")
    return {key: value for key, value in data.items() if key not in OWN_KEYS or partition in OWN_KEYS[key]}


def parse_toml(text: str, *, where: str) -> Table:
    """Return the table of a TOML text; refuse what is not TOML, with `where` it is from."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # Python reads no number of 5,000 digits, and no 1,000 brackets
        raise InputError(f"{where} is not TOML: {error}; correct it") from error
