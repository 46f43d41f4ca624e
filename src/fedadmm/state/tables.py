"""The tables of a store's file within one transaction: every value is sealed with its key.

A state is one value under (client, round). A larger one is written in pieces under (client, round, place, number of
pieces): no copy of it is larger than a piece, which is still in the cache when it is checked and copied. In format 1 it
is always one value.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import lmdb

from fedadmm.state.encoding import CRC32, XXH3, Bytes, Checksum, DamagedError, in_pieces, seal, unseal

FORMAT = 2  # of new stores
FORMATS = {"1": CRC32, "2": XXH3}  # that are read and gone on with; the checksum of their states
TABLES = ("states", "index", "records", "meta")

NUMBER = struct.Struct(">Q")
PAIR = struct.Struct(">QQ")  # (client, round)

PLACE = struct.Struct(">II")  # (place of a piece, number of pieces)
PIECE = (1 << 20) - 64  # bytes; with what LMDB and the checksum add, it fits whole pages

Piece = tuple[bytes, list[Bytes]]  # the end of its key, and its parts


def cut(parts: Sequence[Bytes], format: str) -> Iterator[Piece]:
    """Yield an encoded state in the pieces that it is written in."""
    size = sum(map(len, parts))
    number = 1 if format == "1" else -(-size // PIECE)
    for place, piece in enumerate(in_pieces(parts, size if number == 1 else PIECE)):
        yield b"" if number == 1 else PLACE.pack(place, number), piece


def pair_of(key: bytes) -> tuple[int, int]:
    """Return the client and the round of a piece."""
    client, round = PAIR.unpack_from(key)
    return client, round


def whole_states(keys: Iterable[bytes]) -> set[tuple[int, int]]:
    """Return the (client, round) of the states of which all pieces are there; keys rise."""
    return {pair for pair, own in groupby(keys, pair_of) if _is_whole([key[PAIR.size :] for key in own])}


def _is_whole(ends: list[bytes]) -> bool:
    if ends == [b""]:
        return True
    return ends == [PLACE.pack(place, len(ends)) for place in range(len(ends))]


class Tables:
    """The tables within one transaction."""

    def __init__(self, transaction: lmdb.Transaction, tables: Mapping[str, Any], format: str = str(FORMAT)) -> None:
        self._transaction, self._tables, self._format = transaction, tables, format

    def find(self, table: str, key: bytes) -> memoryview | None:
        """Return a value, None if there is none; a damaged one is an error."""
        value = self._transaction.get(key, db=self._tables[table])
        return None if value is None else unseal(key, value, checksum=self._checksum(table))

    def get(self, table: str, key: bytes) -> memoryview:
        """Return a value that must be there."""
        value = self.find(table, key)
        if value is None:
            raise DamagedError("it is missing")
        return value

    def put(self, table: str, key: bytes, *parts: Bytes) -> None:
        """Write a value, which is given in parts."""
        self._transaction.put(key, seal(key, *parts, checksum=self._checksum(table)), db=self._tables[table])

    def delete(self, table: str, key: bytes) -> bool:
        """Remove a value, whose room is used again; return whether there was one."""
        return bool(self._transaction.delete(key, db=self._tables[table]))

    def state(self, client: int, round: int) -> Iterator[memoryview]:
        """Yield the pieces of a state, of which all must be there."""
        keys, cursor, pair = [], self._at_state(client, round), PAIR.pack(client, round)
        while (key := bytes(cursor.key())).startswith(pair):
            keys.append(key)
            cursor.next()
        if (client, round) not in whole_states(keys):
            raise DamagedError("it is missing" if not keys else "a part of it is missing")
        for key in keys:
            yield self.get("states", key)

    def put_state(self, client: int, round: int, parts: Sequence[Bytes]) -> None:
        """Write an encoded state."""
        self.put_pieces(client, round, cut(parts, self._format))

    def put_pieces(self, client: int, round: int, pieces: Iterable[Piece]) -> None:
        """Write some pieces of a state."""
        for end, parts in pieces:
            self.put("states", PAIR.pack(client, round) + end, *parts)

    def delete_state(self, client: int, round: int) -> None:
        """Remove what there is of a state."""
        cursor, pair = self._at_state(client, round), PAIR.pack(client, round)
        while bytes(cursor.key()).startswith(pair):
            cursor.delete()

    def _at_state(self, client: int, round: int) -> lmdb.Cursor:
        cursor = self._transaction.cursor(self._tables["states"])
        cursor.set_range(PAIR.pack(client, round))
        return cursor

    def items(self, table: str) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the keys, rising, and their values, still sealed."""
        for key, value in self._transaction.cursor(self._tables[table]):
            yield bytes(key), memoryview(value)

    def keys(self, table: str) -> list[bytes]:
        """Return the keys, rising."""
        cursor = self._transaction.cursor(self._tables[table])
        return [bytes(key) for key in cursor.iternext(keys=True, values=False)]

    def _checksum(self, table: str) -> Checksum:
        return FORMATS[self._format] if table == "states" else CRC32
