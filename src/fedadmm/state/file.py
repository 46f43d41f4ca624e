"""The file of a store: LMDB with four tables, a checksum on every value, and errors that are sentences.

Before it is used, its pages are checked, and what it was written with.

`states` (client, round) -> state, written ahead, in pieces (tables.py); `index` client -> (client, round of the state
that counts); `records` round -> record; `meta` what the store is, theta^0 and the server's checkpoint.
"""

import errno
import json
import os
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import lmdb
import torch

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.files import made_whole
from fedadmm.state.encoding import DamagedError, decode_pieces, encode
from fedadmm.state.pages import Layout, read_layout
from fedadmm.state.tables import FORMAT, FORMATS, TABLES, Tables, cut

MAP_SIZE = 1 << 40  # address space, not disk: the file grows with what is in it


def map_size() -> int:
    """Return how much address space a store may take: a quarter of what the process is allowed (ulimit -v)."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    return MAP_SIZE if allowed == resource.RLIM_INFINITY else min(MAP_SIZE, allowed // 4 >> 12 << 12)


Durability = Literal["process", "power"]

# Of (key, what it was written with): how to go on with that; None where there is no more to say than that.
Advice = Callable[[str, str | None], str | None]

PIECES_AT_ONCE = 64  # of a state, which are one transaction


@dataclass(eq=False)
class StateFile:
    """An open store file. It pickles as its address, so that a worker process opens it for itself."""

    folder: Path
    client_type: Callable[..., Message]
    float_type: torch.dtype | None = None
    durability: Durability = "process"
    readonly: bool = False
    format: str = str(FORMAT)

    def __post_init__(self) -> None:
        self._process = os.getpid()
        with self.guarded():
            # Without a sync a committed page is the kernel's, which a kill does not reach. With it, the pages of a
            # transaction are on the disk before its meta page is, and `flush` puts that there too.
            self._env = lmdb.open(
                str(self.folder),
                map_size=map_size(),
                max_dbs=len(TABLES),
                sync=self.durability == "power",
                metasync=False,
                readonly=self.readonly,
                lock=not self.readonly,  # a reader of a folder at rest; it may be on a disk that cannot be written
                create=False,
                max_spare_txns=0,  # no reader's slot is held between two reads, so a fork inherits none
            )
            self._tables = {name: self._env.open_db(name.encode(), create=False) for name in TABLES}

    def __reduce__(self) -> tuple[type["StateFile"], tuple[Any, ...]]:
        return StateFile, tuple(getattr(self, field.name) for field in fields(self))

    def own(self) -> "StateFile":
        """Return this file as this process may use it.

        LMDB must not be used across a fork: a forked worker closes the copy that it inherited, which leaves the
        parent's open, and opens the file for itself. Whoever forgets to is stopped by an assert.
        """
        if self._process == os.getpid():
            return self
        self._env.close()
        return replace(self)

    def close(self) -> None:
        """Close the file; it is not used afterwards."""
        self._env.close()

    def get_version(self, client: int, round: int) -> Message:
        """Return the state that a client had after its visit in a round."""
        with self.reading(f"the state of client {client}") as tables:
            state: Message = self.client_type(*decode_pieces(tables.state(client, round)))
            return state

    def stage(self, round: int, client: int, state: Message) -> None:
        """Write a state ahead of its round's commit, in small transactions of its own."""
        pieces = cut(encode(state, float_type=self.float_type), self.format)
        while some := list(islice(pieces, PIECES_AT_ONCE)):
            with self.writing() as tables:
                tables.put_pieces(client, round, some)

    def flush(self) -> None:
        """Put what was committed beyond a loss of power, if that was asked for."""
        if self.durability == "power":
            with self.guarded():
                self._env.sync(True)

    def forget_dead_readers(self) -> None:
        """Free what worker processes that died while they read still hold on to."""
        with self.guarded():
            self._env.reader_check()

    @contextmanager
    def reading(self, what: str = "the store") -> Iterator[Tables]:
        """Give a consistent view of the tables; `what` is being read, and is named if it is damaged."""
        with self.guarded(what), self._own_env().begin(buffers=True) as transaction:
            yield Tables(transaction, self._tables, self.format)

    @contextmanager
    def writing(self) -> Iterator[Tables]:
        """Give the tables for changes that count together, or not at all."""
        with self.guarded(), self._own_env().begin(write=True) as transaction:
            yield Tables(transaction, self._tables, self.format)

    def _own_env(self) -> lmdb.Environment:
        assert self._process == os.getpid(), f"{self.folder} was opened before a fork; use StateFile.own()"
        return self._env

    @contextmanager
    def guarded(self, what: str = "the store") -> Iterator[None]:
        """Turn what can go wrong on a disk into a sentence."""
        try:
            yield
        except DamagedError as error:
            raise damage(what, self.folder, str(error)) from None
        except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.NotFoundError) as error:
            raise damage(what, self.folder, str(error)) from error
        except lmdb.MapFullError as error:
            raise InputError(
                f"{self.folder} has reached {map_size():,} bytes, the most that a store holds here; keep the state as "
                'bfloat16, state.float_type = "bfloat16", use fewer clients, or allow more address space (ulimit -v)'
            ) from error
        except (lmdb.Error, OSError) as error:
            raise unusable(self.folder, error) from error


def fields_of(*types: type[Any]) -> str:
    """Return the fields of the messages in a store, which a store of other messages does not have."""
    return "; ".join(f"{each.__name__} {', '.join(each._fields)}".strip() for each in types)


def open_checked(
    folder: Path,
    *,
    about: Mapping[str, str],
    initial: Vector | None = None,
    remedy: str,
    advice: Advice | None = None,
    **options: Any,
) -> tuple[StateFile, dict[str, str], Layout]:
    """Open the file in a folder, or make it there with `initial`, theta^0; one written with anything else is refused.

    What it was written with and the layout of its pages are returned with it.
    remedy: what to do instead of going on. advice: how to go on. options: those of `StateFile`.
    """
    if not folder.exists():
        create(folder, about={"format": str(FORMAT), **about}, initial=initial)
    try:  # before LMDB reads the pages: where they contradict each other it may crash, or write over what counts
        layout = read_layout(folder / "data.mdb")
    except (DamagedError, OSError) as error:
        detail = f"data.mdb: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise damage("the store", folder, detail) from None
    file = StateFile(folder, **options)
    try:
        written = _checked_about(file, about, remedy=remedy, advice=advice)
        file.format = written["format"]
        return file, written, layout
    except BaseException:
        file.close()
        raise


def _checked_about(
    file: StateFile, expected: Mapping[str, str], *, remedy: str, advice: Advice | None
) -> dict[str, str]:
    with file.reading("the store's description") as tables:
        about: dict[str, str] = json.loads(bytes(tables.get("meta", b"about")))
    readable = about.get("format") if about.get("format") in FORMATS else str(FORMAT)
    for key, here in {"format": readable, **expected}.items():
        if about.get(key) != here:
            how = None if advice is None else advice(key, about.get(key))
            raise InputError(
                f"{file.folder} was written with {key} {about.get(key)}, here it is {here}, and rounds of the two "
                f"do not mix; {how or 'go on with what wrote it'}, or {remedy}"
            )
    return about


def create(folder: Path, *, about: Mapping[str, str], initial: Vector | None = None) -> None:
    """Make a store in a folder, whole or not at all; `initial` is theta^0, if it is kept there."""
    try:
        with made_whole(folder) as beside:
            beside.mkdir(parents=True)
            opened = lmdb.open(str(beside), map_size=map_size(), max_dbs=len(TABLES))
            with opened as env, env.begin(write=True) as transaction:  # one, as each waits for the disk
                writer = Tables(transaction, {name: env.open_db(name.encode(), txn=transaction) for name in TABLES})
                writer.put("meta", b"about", json.dumps(dict(about)).encode())
                if initial is not None:
                    writer.put("meta", b"initial", *encode((initial,)))
        handle = os.open(folder.parent, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    except (lmdb.Error, OSError) as error:
        raise unusable(folder, error) from error


def copy_store(folder: Path, to: Path) -> None:
    """Copy a store as of its last transaction, while others read and write it."""
    to.mkdir()
    try:
        with lmdb.open(str(folder), map_size=map_size(), readonly=True, create=False) as env:
            env.copy(str(to))
        handle = os.open(to / "data.mdb", os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError) as error:
        raise damage("the store", folder, str(error)) from error
    except (lmdb.Error, OSError) as error:
        raise unusable(to, error) from error


def about_of(folder: Path) -> dict[str, str]:
    """Return what the store in a folder at rest says that it is."""
    file, about, _ = open_checked(folder, about={}, remedy="", client_type=tuple, readonly=True)
    file.close()
    return about


def damage(what: str, folder: Path, detail: str = "") -> InputError:
    """Return the error for something that is not what was written."""
    detail = f" ({detail})" if detail else ""
    return InputError(
        f"{what} in {folder} is damaged{detail}; restore the run folder from a copy, or remove it and run again"
    )


def unusable(folder: Path, error: Exception) -> InputError:
    """Return the error for a disk that is full, that cannot be written, or that fails."""
    if isinstance(error, lmdb.MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return InputError(f"cannot map {folder}: {error}; allow more memory or address space (ulimit -v)")
    return InputError(
        f"cannot write {folder}: {error}; fix that (is the disk full?) and run the same command again: "
        "no committed round is lost"
    )
