"""Client states on disk, in LMDB: one transaction a round, a checksum on every value.

Four tables: `states` (client, round) -> state, written ahead; `index` client -> round of the state that counts;
`records` round -> record; `meta` the format, theta^0 and the server's progress. What no index entry refers to
is reclaimed. The index is small and held in memory, so a damaged page cannot turn a client into a newcomer.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import lmdb
import torch

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.round import Buffers, Progress
from fedadmm.state.encoding import DamagedError, decode, encode, seal, unseal

FORMAT = 1
MAP_SIZE = 1 << 40  # address space, not disk: the file grows with what is in it

Durability = Literal["process", "power"]
Kinds = tuple[type[Any], type[Any]]  # an algorithm's Server and Client

_NUMBER = struct.Struct(">Q")
_STATE = struct.Struct(">QQ")


class DiskStore:
    """A store that survives its process, and with durability "power" the machine."""

    def __init__(
        self,
        folder: Path,
        *,
        kinds: Kinds,
        identity: Mapping[str, str],
        initial: Vector | None = None,
        float_type: torch.dtype | None = None,
        durability: Durability = "process",
        readonly: bool = False,
    ) -> None:
        """Open the store in a folder, or make it there: then `initial`, theta^0, is needed.

        `identity` says what the rounds depend on (the experiment, the versions); another one is refused.
        """
        self._folder, self._float_type = folder, float_type
        self._server_kind, self._client_kind = kinds
        exists = (folder / "data.mdb").exists()
        if not exists and (readonly or initial is None):
            raise InputError(f"there is no state in {folder}; run the experiment first")
        sync = durability == "power"
        with self._guard():
            folder.mkdir(parents=True, exist_ok=True)
            self._env = lmdb.open(
                str(folder),
                map_size=MAP_SIZE,
                max_dbs=4,
                sync=sync,
                metasync=sync,
                readonly=readonly,
                readahead=False,
            )
            is_new = not self._env.stat()["entries"]
            self._states, self._index, self._records, self._meta = (
                self._env.open_db(name, create=is_new) for name in (b"states", b"index", b"records", b"meta")
            )
            if is_new:
                with self._env.begin(write=True) as transaction:
                    about = {"format": str(FORMAT), **identity}
                    self._put(transaction, self._meta, b"about", json.dumps(about).encode())
                    self._put(transaction, self._meta, b"initial", encode((initial,)))
            with self._env.begin() as transaction:
                self._check_about(transaction, identity)
                self._rounds = self._read_index(transaction)  # client -> round of its state
                self._check_count(transaction)
            if not readonly:
                self._reclaim()

    def close(self) -> None:
        """Close the file; the store is not used afterwards."""
        self._env.close()

    def get(self, client: int) -> Message | None:
        """Return a client's committed state, None if it has none."""
        round = self._rounds.get(client)
        return None if round is None else self.get_version(client, round)

    def get_version(self, client: int, round: int) -> Message:
        """Return the state that a client had after its visit in a round."""
        key = _STATE.pack(client, round)
        with self._guard(f"the state of client {client}"), self._env.begin(buffers=True) as transaction:
            state: Message = self._client_kind(*decode(self._get(transaction, self._states, key)))
            return state

    def stage(self, round: int, client: int, state: Message) -> None:
        """Write a state ahead of its round's commit, in a small transaction of its own."""
        payload = encode(state, float_type=self._float_type)
        with self._guard(), self._env.begin(write=True) as transaction:
            self._put(transaction, self._states, _STATE.pack(client, round), payload)

    def commit(self, progress: Progress, *, clients: Sequence[int], record: dict[str, Any]) -> None:
        """Make a round count in one transaction, and reclaim the states that it replaced."""
        number = progress.round
        seen = len(self._rounds) + sum(client not in self._rounds for client in clients)
        with self._guard(), self._env.begin(write=True) as transaction:
            for client in clients:
                self._put(transaction, self._index, _NUMBER.pack(client), _NUMBER.pack(number))
                if client in self._rounds:
                    transaction.delete(_STATE.pack(client, self._rounds[client]), db=self._states)
            self._put(transaction, self._records, _NUMBER.pack(number), json.dumps(record).encode())
            fields = (number, seen, progress.seen, *progress.buffers, *progress.server)
            self._put(transaction, self._meta, b"progress", encode(fields))
        self._rounds.update(dict.fromkeys(clients, number))

    def progress(self) -> Progress | None:
        """Return the progress after the last committed round, None before the first."""
        with self._guard("the server's progress"), self._env.begin(buffers=True) as transaction:
            fields = self._progress_fields(transaction)
        if fields is None:
            return None
        number, _, seen, floats, integers, *server = fields
        return Progress(number, self._server_kind(*server), Buffers(floats, integers), seen)

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the committed rounds."""
        found = []
        with self._guard("a round's record"), self._env.begin(buffers=True) as transaction:
            for key, value in transaction.cursor(self._records):
                found.append(json.loads(bytes(unseal(bytes(key), value))))
            fields = self._progress_fields(transaction)
        if [record["round"] for record in found] != list(range(1, (fields[0] if fields else 0) + 1)):
            raise self._damage("the list of rounds")
        return found

    def initial(self) -> Vector:
        """Return theta^0."""
        with self._guard("the initial model"), self._env.begin(buffers=True) as transaction:
            theta: Vector = decode(self._get(transaction, self._meta, b"initial"))[0]
        return theta

    def round_of(self, client: int) -> int | None:
        """Return the round of a client's state, None if it has none."""
        return self._rounds.get(client)

    def __len__(self) -> int:
        return len(self._rounds)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._rounds))

    def _check_about(self, transaction: lmdb.Transaction, identity: Mapping[str, str]) -> None:
        about = json.loads(bytes(self._get(transaction, self._meta, b"about")))
        for key, here in {"format": str(FORMAT), **identity}.items():
            if about.get(key) != here:
                raise InputError(
                    f"{self._folder} was written with {key} {about.get(key)}, here it is {here}, and rounds of the two "
                    "do not mix; go on with what wrote it, or give another --out"
                )

    def _read_index(self, transaction: lmdb.Transaction) -> dict[int, int]:
        rounds = {}
        for key, value in transaction.cursor(self._index):
            client = int.from_bytes(key, "big")
            try:
                rounds[client] = _NUMBER.unpack(unseal(bytes(key), value))[0]
            except (DamagedError, struct.error):
                raise self._damage(f"the index entry of client {client}") from None
        return rounds

    def _check_count(self, transaction: lmdb.Transaction) -> None:
        fields = self._progress_fields(transaction)
        if len(self._rounds) != (fields[1] if fields else 0):
            raise self._damage("the index of clients")

    def _reclaim(self) -> None:
        """Delete the states that were written ahead for a round that never counted."""
        with self._env.begin(write=True) as transaction:
            cursor = transaction.cursor(self._states)
            more = cursor.first()
            while more:
                key = cursor.key()
                counts = (
                    len(key) == _STATE.size
                    and self._rounds.get(_STATE.unpack(key)[0]) == _STATE.unpack(key)[1]
                )
                more = cursor.next() if counts else (cursor.delete() and bool(cursor.key()))

    def _progress_fields(self, transaction: lmdb.Transaction) -> list[Any] | None:
        value = transaction.get(b"progress", db=self._meta)
        return None if value is None else decode(unseal(b"progress", value))

    def _get(self, transaction: lmdb.Transaction, table: Any, key: bytes) -> memoryview:
        value = transaction.get(key, db=table)
        if value is None:
            raise DamagedError
        return unseal(key, value)

    def _put(self, transaction: lmdb.Transaction, table: Any, key: bytes, payload: bytes) -> None:
        transaction.put(key, seal(key, payload), db=table)

    def _damage(self, what: str) -> InputError:
        return InputError(
            f"{what} in {self._folder} is damaged; restore the run folder from a copy, or remove it and run again"
        )

    @contextmanager
    def _guard(self, what: str = "the store") -> Iterator[None]:
        """Turn what can go wrong on a disk into a sentence."""
        try:
            yield
        except DamagedError:
            raise self._damage(what) from None
        except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.NotFoundError) as error:
            raise self._damage(f"{what} ({error})") from error
        except (lmdb.Error, OSError) as error:
            raise InputError(
                f"cannot write {self._folder}: {error}; mend that and run the same command again, nothing is lost"
            ) from error
