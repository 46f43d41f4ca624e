"""The pages of an LMDB file, read without LMDB, which trusts what it reads and may crash on a flipped bit.

Every page must be where its parent says, hold nodes that fill it without overlap, and be used exactly once or be
on the free list: LMDB writes over what it believes to be free. Values are not looked at: they carry checksums.
The layout is that of LMDB 0.9 on a little-endian machine of 64 bits (`mdb.c`: MDB_meta, MDB_db, MDB_page, MDB_node).
"""

import mmap
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fedadmm.state.encoding import DamagedError

_PAGE = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper
_OVERFLOW = struct.Struct("<QHHI")  # number, pad, flags, how many pages
_META = struct.Struct("<IIQQ48s48sQQ")  # magic, version, address, map size, free list, main table, last page, id
_TREE = struct.Struct("<IHHQQQQQ")  # pad, flags, depth, branch, leaf and overflow pages, entries, root
_NODE = struct.Struct("<HHHH")  # low and high half of a size (or a page's number), flags, size of the key
_ID = struct.Struct("<Q")

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOWS, _METAS = 1, 2, 4, 8  # flags of a page
_BIG, _SUBTREE = 1, 2  # flags of a node: the value is on pages of its own, or is a table
_INTEGER_KEYS = 8  # flag of the free list
_EMPTY = 2**64 - 1  # the root of an empty tree
_MAX_DEPTH = 32


class Entry(NamedTuple):
    """A key and its value, as spans of the file."""

    key: bytes
    key_start: int
    value_start: int
    value_size: int


@dataclass
class Layout:
    """What a file holds, table by table."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    unsorted: str | None = None  # a table whose keys do not rise

    def keys(self, table: str) -> list[bytes]:
        """Return the keys of a table."""
        return [entry.key for entry in self.entries[table]]


def read_layout(path: Path) -> Layout:
    """Return what the file holds; pages that contradict each other are an error that names one."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise DamagedError("data.mdb is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                return _Reader(content).layout()
            except struct.error:
                raise DamagedError("data.mdb is too short") from None


class _Reader:
    """One pass over the pages of a file."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content

    def layout(self) -> Layout:
        free, main, self._last = self._newest_meta()
        _require((self._last + 1) * self._size <= len(self._content), "data.mdb is too short")
        self._known = bytearray(self._last + 1)  # a byte a page: 1 once it is known what it is for
        self._claim(0, 2)
        layout = Layout()
        for entry in self._tree(main, "the list of tables", layout):
            name = entry.key.decode("ascii", "replace")
            table = self._content[entry.value_start : entry.value_start + _TREE.size]
            layout.entries[name] = self._tree(table, name, layout)
        for entry in self._tree(free, "the free list", layout):
            self._free_pages(entry)
        _require(all(self._known), f"page {self._known.find(0)} is neither in use nor free")
        return layout

    def _newest_meta(self) -> tuple[bytes, bytes, int]:
        """Return the free list and the main table of the last transaction, and the last page in use."""
        (self._size,) = struct.unpack_from("<I", self._content, _PAGE.size + 24)  # in the free list's pad
        _require(512 <= self._size <= 65536 and self._size.bit_count() == 1, f"pages of {self._size} bytes")
        metas = []
        for number in (0, 1):
            own, _, flags, _, _ = _PAGE.unpack_from(self._content, number * self._size)
            meta = _META.unpack_from(self._content, number * self._size + _PAGE.size)
            size = _TREE.unpack(meta[4])[0]
            expected = (number, _METAS, _MAGIC, _VERSION, self._size)
            _require((own, flags, *meta[:2], size) == expected, f"page {number} is not a meta page")
            metas.append(meta)
        even, odd = (meta[7] for meta in metas)
        # Transactions alternate between the two pages. Another pair would make LMDB go back to an older state.
        _require(even % 2 == 0 and abs(even - odd) == 1, f"transactions {even} and {odd} on the meta pages")
        newest = metas[0] if even > odd else metas[1]
        return newest[4], newest[5], newest[6]

    def _tree(self, tree: bytes, name: str, layout: Layout) -> list[Entry]:
        """Return the entries of a tree, whose pages must be as many as it says."""
        _, flags, depth, *counts, root = _TREE.unpack(tree)
        _require((flags & 0xFF) == (_INTEGER_KEYS if name == "the free list" else 0), f"{name} has flags {flags}")
        found = [0, 0, 0, 0]  # branch, leaf and overflow pages, entries
        entries: list[Entry] = []
        if root == _EMPTY:
            _require(depth == 0, f"{name} has no root")
        else:
            _require(0 < depth <= _MAX_DEPTH, f"{name} is {depth} pages deep")
            self._page(root, depth, found, entries)
        _require(counts == found, f"{name} counts {counts} pages and entries, and has {found}")
        keys = [entry.key[::-1] if name == "the free list" else entry.key for entry in entries]
        if any(left >= right for left, right in pairwise(keys)):
            layout.unsorted = name
        return entries

    def _page(self, number: int, depth: int, found: list[int], entries: list[Entry]) -> None:
        """Add the entries at and below a page."""
        self._claim(number)
        start = number * self._size
        own, _, flags, lower, upper = _PAGE.unpack_from(self._content, start)
        wanted = _LEAF if depth == 1 else _BRANCH
        _require((own, flags) == (number, wanted), f"page {number} is not what refers to it")
        found[depth == 1] += 1
        count = (lower - _PAGE.size) // 2
        sound = lower % 2 == 0 and count > 0 and lower <= upper <= self._size
        _require(sound, f"page {number} has its nodes from {lower} to {upper}")
        spans: list[tuple[int, int]] = []
        for offset in struct.unpack_from(f"<{count}H", self._content, start + _PAGE.size):
            _require(upper <= offset <= self._size - _NODE.size, f"page {number} has a node at {offset}")
            low, high, node_flags, key_size = _NODE.unpack_from(self._content, start + offset)
            key_start = start + offset + _NODE.size
            length = _NODE.size + key_size
            if depth > 1:
                self._page(low | high << 16 | node_flags << 32, depth - 1, found, entries)
            else:
                value_size, value_start = low | high << 16, key_start + key_size
                _require(node_flags in (0, _BIG, _SUBTREE), f"page {number} has a node of kind {node_flags}")
                length += 8 if node_flags & _BIG else value_size
                _require(offset + length <= self._size, f"page {number} has a node beyond its end")
                if node_flags & _BIG:
                    value_start = self._overflow(value_start, value_size, found)
                key = self._content[key_start : key_start + key_size]
                entries.append(Entry(key, key_start, value_start, value_size))
                found[3] += 1
            spans.append((offset, offset + length + length % 2))
        spans.sort()
        ends = [upper, *(stop for _, stop in spans)]
        fits = ends == [*(first for first, _ in spans), self._size]
        _require(fits, f"page {number} has nodes that overlap")

    def _overflow(self, reference: int, value_size: int, found: list[int]) -> int:
        """Return where a large value starts, on pages of its own."""
        (number,) = _ID.unpack_from(self._content, reference)
        count = -(-(_PAGE.size + value_size) // self._size)
        self._claim(number, count)
        own, _, flags, pages = _OVERFLOW.unpack_from(self._content, number * self._size)
        expected = (number, _OVERFLOWS, count)
        _require((own, flags, pages) == expected, f"page {number} is not the large value that it should be")
        found[2] += count
        return number * self._size + _PAGE.size

    def _free_pages(self, entry: Entry) -> None:
        (count,) = _ID.unpack_from(self._content, entry.value_start)
        _require((count + 1) * _ID.size <= entry.value_size, f"the free list has an entry of {count} pages")
        for number in struct.unpack_from(f"<{count}Q", self._content, entry.value_start + _ID.size):
            self._claim(number)

    def _claim(self, number: int, count: int = 1) -> None:
        """Say what pages are for, which may be said once."""
        _require(number + count <= len(self._known), f"page {number} is beyond the last, {self._last}")
        _require(not any(self._known[number : number + count]), f"page {number} is used twice")
        self._known[number : number + count] = b"\1" * count


def _require(sound: bool, otherwise: str) -> None:
    if not sound:
        raise DamagedError(otherwise)
