"""The states of one client on its node, each under the number of its update."""

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.delivery import NONE, Journal
from fedadmm.state.encoding import decode, encode
from fedadmm.state.file import fields_of, open_checked
from fedadmm.state.tables import pair_of

SECRET = b"secret"  # with which digests are keyed
REMEDY = "give this federation a name or a state-dir of its own"


class SavedState(NamedTuple):
    """What a client keeps of an update."""

    state: Message
    residual: Vector | None = None  # what rounding on the wire held back of its uploads, to be sent with the next


class NodeStore:
    """A client's states under the numbers of their updates; what it wrote survives a loss of power."""

    def __init__(self, folder: Path, *, client: int, client_type: type[Any], identity: Mapping[str, str]) -> None:
        """Open the store in a folder, or make it there; `identity` is that of the federation, and no other fits."""
        about = {"fields": fields_of(client_type), "client": str(client), **identity}
        self._client = client

        def saved(*fields: Any) -> SavedState:
            *state, residual = fields
            return SavedState(client_type(*state), residual)

        self._file, _, _ = open_checked(folder, about=about, remedy=REMEDY, client_type=saved, durability="power")

    def __enter__(self) -> "NodeStore":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def journal(self) -> Journal:
        """Return which updates there are states of."""
        with self._file.reading("the journal") as tables:
            value = tables.find("meta", b"journal")
            if value is None:
                return Journal()
            acknowledged, pending = decode(value)
            written = dict.fromkeys(pair_of(key)[1] for key in tables.keys("states"))  # rising
            return Journal(acknowledged, pending, tuple(number for number in written if number < acknowledged))

    def get(self, number: int) -> SavedState | None:
        """Return what was kept of an update that the journal names; None of none."""
        return None if number == NONE else SavedState(*self._file.get_version(self._client, number))

    def digest(self, number: int) -> str:
        """Return a digest of what was kept of an update, as it is stored; nothing of none.

        It is keyed with a secret of this store: who guesses a state cannot tell by its digest whether it is right.
        """
        with self._file.reading(f"the state of client {self._client}") as tables:
            secret = tables.find("meta", SECRET)
            if number == NONE or secret is None:
                return ""
            digest = hashlib.blake2b(key=bytes(secret), digest_size=16)
            for piece in tables.state(self._client, number):
                digest.update(piece)
            return digest.hexdigest()

    def write(self, journal: Journal, *, pending: SavedState) -> None:
        """Write a journal and what it has pending in one transaction; what it no longer names is deleted."""
        acknowledged, pending_number, kept = journal
        named = {(self._client, number) for number in (acknowledged, pending_number, *kept)}
        with self._file.writing() as tables:
            for stale in {pair_of(key) for key in tables.keys("states")} - named:
                tables.delete_state(*stale)
            tables.put_state(self._client, pending_number, encode((*pending.state, pending.residual)))
            if tables.find("meta", SECRET) is None:
                tables.put("meta", SECRET, secrets.token_bytes(32))
            tables.put("meta", b"journal", *encode((acknowledged, pending_number)))
        self._file.flush()
