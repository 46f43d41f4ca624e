"""Client states of a federation on disk: its rounds are transactions.

What no index entry refers to is reclaimed. The index is small and held in memory, so a damaged page cannot turn a
client into a newcomer; the checkpoint carries a digest of it, so an old one cannot pass for the present one.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.round import Buffers, ServerCheckpoint
from fedadmm.state.encoding import DamagedError, decode, encode, unseal
from fedadmm.state.file import Advice, Durability, damage, fields_of, open_checked
from fedadmm.state.many import ManyStates
from fedadmm.state.notes import KeepsNotes, write_notes
from fedadmm.state.tables import NUMBER, PAIR, Tables, pair_of, whole_states

FEW, SMALL = 10_000, 1 << 28  # clients and bytes of a store, every state of which is read in a fraction of a second
CHECKPOINT = b"progress"  # the key of the newest
OLDER = b"progress after "  # and a round: what clients that are still at work were sent


class DiskStore(ManyStates, KeepsNotes):
    """A store that survives its process, and with durability "power" the machine."""

    def __init__(
        self,
        folder: Path,
        *,
        types: tuple[type[Any], type[Any]],
        identity: Mapping[str, str] | None,
        initial: Vector | None = None,
        float_type: torch.dtype | None = None,
        durability: Durability = "process",
        readonly: bool = False,
        remedy: str = "give another --out",
        advice: Advice | None = None,
    ) -> None:
        """Open the store in a folder, or make it there: then `initial`, theta^0, is needed.

        `identity` says what the rounds depend on (the experiment, the versions); another one is refused with
        `advice` and `remedy`, None accepts any. Nothing else may write to the folder meanwhile, but worker processes
        with `file`.
        """
        self.folder, self.float_type = folder, float_type
        self._server_type, client_type = types
        if not folder.exists() and (readonly or initial is None or identity is None):
            raise InputError(f"there is no state in {folder}; run the experiment first")
        about = {"fields": fields_of(*types), **(identity or {})}
        options: dict[str, Any] = {"float_type": float_type, "durability": durability, "readonly": readonly}
        self.file, self.about, layout = open_checked(
            folder, about=about, initial=initial, remedy=remedy, advice=advice, client_type=client_type, **options
        )
        try:
            self._rounds = self._read_index()  # client -> round of its state
            self._digest = _digest(self._rounds.items()) % 2**64
            older = [key.removeprefix(OLDER) for key in layout.keys("meta") if key.startswith(OLDER)]
            self._kept = {int.from_bytes(key, "big") for key in older}
            self._check(layout.keys("states"))
            if layout.unsorted:
                raise damage("the store", folder, f"keys of {layout.unsorted} are out of order")
            if not readonly:  # what was written ahead for a round that never counted
                written = dict.fromkeys(pair_of(key) for key in layout.keys("states"))
                self._delete_states([pair for pair in written if self._rounds.get(pair[0]) != pair[1]])
        except BaseException:
            self.file.close()
            raise

    def close(self) -> None:
        """Close the file; the store is not used afterwards."""
        self.file.close()

    def get(self, client: int) -> Message | None:
        """Return a client's committed state, None if it has none."""
        round = self._rounds.get(client)
        return None if round is None else self.file.get_version(client, round)

    def damaged_states(self) -> Iterator[str]:
        """Yield what is wrong with states, which a run may not need for long; a large store is not read for it."""
        if len(self) <= FEW and (self.folder / "data.mdb").stat().st_size <= SMALL:
            for client in self:
                try:
                    self.get(client)
                except InputError as error:
                    yield str(error)

    def stage(self, round: int, client: int, state: Message) -> None:
        """Write a state ahead of its round's commit."""
        self.file.stage(round, client, state)

    def staged(self, round: int, client: int) -> Message:
        """Return a state that was written ahead."""
        return self.file.get_version(client, round)

    def commit(
        self,
        checkpoint: ServerCheckpoint,
        *,
        clients: Sequence[int],
        record: dict[str, Any],
        keep: Iterable[int] = (),
        notes: Mapping[str, str | None] | None = None,
    ) -> None:
        """Make a round count in one transaction, and reclaim the states and the checkpoint that it replaced.

        keep: rounds whose checkpoints stay. notes: as `note` keeps them, with the round; None: it is forgotten.
        """
        number = checkpoint.round
        replaced = {client: self._rounds[client] for client in clients if client in self._rounds}
        counted, dropped = _digest((client, number) for client in clients), _digest(replaced.items())
        digest = (self._digest + counted - dropped) % 2**64
        self.file.forget_dead_readers()
        with self.file.writing() as tables:
            for client in clients:
                tables.put("index", NUMBER.pack(client), PAIR.pack(client, number))
            for pair in replaced.items():
                tables.delete_state(*pair)
            kept = self._keep_older(tables, number - 1, set(keep))
            tables.put("records", NUMBER.pack(number), json.dumps(record).encode())
            fields = (number, digest, checkpoint.seen, *checkpoint.buffers, *checkpoint.server)
            tables.put("meta", CHECKPOINT, *encode(fields))
            write_notes(tables, notes or {})
        self.file.flush()
        self._rounds.update(dict.fromkeys(clients, number))
        self._digest = digest
        self._kept = kept

    def _keep_older(self, tables: Tables, last: int, keep: set[int]) -> set[int]:
        """Keep the checkpoint that is about to be replaced, if it is needed, and drop those that no longer are."""
        for round in self._kept.difference(keep):
            tables.delete("meta", OLDER + NUMBER.pack(round))
        kept = self._kept.intersection(keep)
        replaced = tables.find("meta", CHECKPOINT) if last in keep else None
        if replaced is None:
            return kept
        tables.put("meta", OLDER + NUMBER.pack(last), bytes(replaced))
        return kept | {last}

    @property
    def kept_rounds(self) -> list[int]:
        """The earlier rounds whose checkpoints were kept, rising."""
        return sorted(self._kept)

    def rewind(
        self, round: int, *, states: Mapping[int, tuple[int, Message] | None], notes: Mapping[str, str | None]
    ) -> None:
        """Go back to a checkpoint that was kept, in one transaction; what came after it is gone.

        states: of the clients whose state is of a later round, the round and the state that they had then, or None.
        """
        rounds = {client: own for client, own in self._rounds.items() if client not in states}
        rounds |= {client: then[0] for client, then in states.items() if then is not None}
        digest = _digest(rounds.items()) % 2**64
        with self.file.writing() as tables:
            fields = decode(tables.get("meta", OLDER + NUMBER.pack(round)))
            if fields[1] != digest:
                raise damage("the index of clients", self.folder, f"it does not lead back to round {round}")
            for client, then in states.items():
                tables.delete_state(client, self._rounds[client])
                tables.delete("index", NUMBER.pack(client))
                if then is not None:
                    tables.put_state(client, then[0], encode(then[1], float_type=self.float_type))
                    tables.put("index", NUMBER.pack(client), PAIR.pack(client, then[0]))
            for later in range(round + 1, len(tables.keys("records")) + 1):
                tables.delete("records", NUMBER.pack(later))
            for kept in self._kept:
                if kept >= round:
                    tables.delete("meta", OLDER + NUMBER.pack(kept))
            tables.put("meta", CHECKPOINT, *encode(fields))
            write_notes(tables, notes)
        self.file.flush()
        self._rounds, self._digest, self._kept = rounds, digest, {kept for kept in self._kept if kept < round}

    def amend(self, server: Message, *, client: int, state: Message) -> None:
        """Put other states of the server and of a client in the place of the committed ones, in one transaction.

        Older checkpoints, in which the client's share is still what it was, are let go of.
        """
        with self.file.writing() as tables:
            for kept in self._kept:
                tables.delete("meta", OLDER + NUMBER.pack(kept))
            fields = _checkpoint_fields(tables)
            assert fields is not None, "a client's state is committed with a checkpoint"
            tables.put("meta", CHECKPOINT, *encode((*fields[: len(fields) - len(server)], *server)))
            tables.put_state(client, self._rounds[client], encode(state, float_type=self.float_type))
        self._kept = set()
        self.file.flush()

    def drop(self, round: int, clients: Sequence[int]) -> None:
        """Delete states that were written ahead for a round that was committed without these clients."""
        self._delete_states([(client, round) for client in clients])

    def checkpoint(self) -> ServerCheckpoint | None:
        """Return the checkpoint after the last committed round, None before the first."""
        with self.file.reading("the server's checkpoint") as tables:
            fields = _checkpoint_fields(tables)
        return None if fields is None else self._read(fields)

    def older_checkpoints(self) -> dict[int, ServerCheckpoint]:
        """Return the checkpoints of earlier rounds that were to be kept."""
        with self.file.reading("the server's checkpoint") as tables:
            return {
                round: self._read(decode(tables.get("meta", OLDER + NUMBER.pack(round))))
                for round in sorted(self._kept)
            }

    def _read(self, fields: Message) -> ServerCheckpoint:
        number, _, seen, floats, integers, *server = fields
        return ServerCheckpoint(number, self._server_type(*server), Buffers(floats, integers), seen)

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the committed rounds."""
        found = []
        with self.file.reading("the list of rounds") as tables:
            for key, value in tables.items("records"):
                with self.file.guarded(f"the record of round {int.from_bytes(key, 'big')}"):
                    found.append(json.loads(bytes(unseal(key, value))))
        return found

    def initial(self) -> Vector:
        """Return theta^0."""
        with self.file.reading("the initial model") as tables:
            theta: Vector = decode(tables.get("meta", b"initial"))[0]
        return theta

    def round_of(self, client: int) -> int | None:
        """Return the round of a client's state, None if it has none."""
        return self._rounds.get(client)

    def __len__(self) -> int:
        return len(self._rounds)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._rounds))

    def _read_index(self) -> dict[int, int]:
        rounds = {}
        with self.file.reading("the index of clients") as tables:
            for key, value in tables.items("index"):
                try:
                    client, rounds[client] = PAIR.unpack(unseal(key, value))
                except DamagedError:
                    raise damage(f"the index entry of client {_owner(key, value)}", self.folder) from None
        return rounds

    def _check(self, state_keys: Iterable[bytes]) -> None:
        """Refuse a store whose parts are of different rounds."""
        written = whole_states(state_keys)
        for client, round in self._rounds.items():
            if (client, round) not in written:
                raise damage(f"the state of client {client}", self.folder, "it is missing")
        with self.file.reading("the server's checkpoint") as tables:
            fields = _checkpoint_fields(tables)
            rounds = tables.keys("records")
        number, digest = (fields[0], fields[1]) if fields else (0, 0)
        if self._digest != digest:
            raise damage("the index of clients", self.folder, f"it is not that of round {number}")
        if rounds != [NUMBER.pack(round) for round in range(1, number + 1)]:
            raise damage("the list of rounds", self.folder, f"it is not that of rounds 1 to {number}")

    def _delete_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            with self.file.writing() as tables:
                for pair in pairs:
                    tables.delete_state(*pair)


def _checkpoint_fields(tables: Tables) -> Message | None:
    value = tables.find("meta", CHECKPOINT)
    return None if value is None else decode(value)


def _digest(pairs: Iterable[tuple[int, int]]) -> int:
    """Return a sum over (client, round) pairs, in any order: a round's commit can bring it up to date."""
    return sum(int.from_bytes(hashlib.blake2b(PAIR.pack(*pair), digest_size=8).digest(), "big") for pair in pairs)


def _owner(key: bytes, value: memoryview) -> int:
    """Return the client of a damaged index entry: an intact value still says whose it is."""
    with suppress(struct.error, DamagedError):
        client: int = PAIR.unpack(value[4:])[0]
        unseal(NUMBER.pack(client), value)
        return client
    return int.from_bytes(key, "big")
