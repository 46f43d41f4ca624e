"""Bytes of the state file are flipped: no wrong value is ever returned, and an error says whose value it was.

Every flipped file is read, and written to, in a process of its own, as LMDB could take that down.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from small_stores import INITIAL, content, disk_store, plain, play

from children import Answering
from fedadmm.core.errors import InputError
from fedadmm.state.disk import DiskStore
from fedadmm.state.pages import Entry, read_layout

pytestmark = pytest.mark.slow

ROUNDS = [[0, 1, 2, 3], [3, 4, 5], [0, 6, 7], [], [1, 3, 8, 9, 10]]
MORE = [[2, 5], [1, 2, 11]]
PAGE = 4096

Outcome = tuple[str, Any]  # ("content", what was read) or ("refused", the sentence) or ("bug", an exception)


@dataclass(frozen=True)
class Reference:
    """A sound file, what it holds, and where."""

    path: Path
    data: bytes
    content: Any
    entries: dict[str, list[Entry]]
    reader: Answering

    def flipped(self, *flips: tuple[int, int]) -> Outcome:
        """Return what comes of reading the file with bytes at these offsets xor'ed with these masks."""
        damaged = bytearray(self.data)
        for offset, mask in flips:
            damaged[offset] ^= mask
        outcome = self.reader.ask((self.path, bytes(damaged)))
        assert outcome is not None, f"the reader died: {flips}"
        assert outcome[0] != "bug", (outcome, flips)
        return outcome

    def spans(self, *tables: str) -> list[tuple[int, int, bytes]]:
        """Return (start, stop, key) of the keys and the values of these tables."""
        return [
            span
            for table in tables
            for e in self.entries[table]
            for span in (
                (e.key_start, e.key_start + len(e.key), e.key),
                (e.value_start, e.value_start + e.value_size, e.key),
            )
        ]


def read_and_write(question: tuple[Path, bytes]) -> Outcome:
    """Read all there is, go on for two rounds, and read again."""
    folder, data = question
    folder.mkdir(exist_ok=True)
    (folder / "data.mdb").write_bytes(data)
    store: DiskStore | None = None
    before: Any = None
    try:
        store = disk_store(folder, initial=None)
        before = (content(store), plain((store.initial(),)))
        play(store, MORE, first=len(ROUNDS) + 1)
        store.close()
        store = disk_store(folder, initial=None)
        return "content", (before, content(store))
    except InputError as error:
        return ("refused", str(error)) if before is None else ("content", (before, str(error)))
    except Exception as error:
        return "bug", repr(error)
    finally:
        if store is not None:
            store.close()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """Return a sound file of a few rounds, whose reader waits for its damaged copies."""
    folder = tmp_path_factory.mktemp("damage")
    store = disk_store(folder / "state")
    play(store, ROUNDS)
    before = (content(store), plain((INITIAL,)))
    store.close()
    file = folder / "state" / "data.mdb"
    data, entries = file.read_bytes(), read_layout(file).entries
    store = disk_store(folder / "state")
    play(store, MORE, first=len(ROUNDS) + 1)
    after = content(store)
    store.close()
    reader = Answering(read_and_write)
    yield Reference(folder / "copy", data, (before, after), entries, reader)
    reader.close()


def test_a_sound_file_is_read_and_goes_on(reference: Reference) -> None:
    assert reference.flipped() == ("content", reference.content)


@pytest.mark.slow
def test_a_flip_in_a_clients_key_or_value_is_an_error_that_names_the_client(reference: Reference) -> None:
    rng = random.Random(1)
    for start, stop, key in reference.spans("states", "index"):
        client = struct.unpack(">Q", key[:8])[0]
        for offset in {start, stop - 1, *(rng.randrange(start, stop) for _ in range(5))}:
            kind, text = reference.flipped((offset, rng.randrange(1, 256)))
            assert kind == "refused"
            assert f"client {client} " in text
            assert "restore the run folder from a copy" in text


def test_a_flip_in_a_record_or_in_the_servers_progress_is_an_error(reference: Reference) -> None:
    rng = random.Random(2)
    for start, stop, _ in reference.spans("records", "meta"):
        for offset in {start, stop - 1, *(rng.randrange(start, stop) for _ in range(5))}:
            kind, text = reference.flipped((offset, rng.randrange(1, 256)))
            assert (kind, "damaged" in text) == ("refused", True), text


def test_a_flip_in_unused_bytes_changes_nothing(reference: Reference) -> None:
    rng = random.Random(3)
    gaps = [gap for gap in _gaps(reference) if gap[0] < gap[1]]
    assert len(gaps) > 5
    for start, stop in gaps:
        for offset in {start, stop - 1, rng.randrange(start, stop)}:
            assert reference.flipped((offset, rng.randrange(1, 256))) == ("content", reference.content)


@pytest.mark.slow
def test_a_flip_anywhere_returns_no_wrong_value(reference: Reference) -> None:
    rng = random.Random(4)
    # A page's header and the pointers behind it are few bytes: half of the flips go there.
    heads = [page + rng.randrange(64) for page in range(0, len(reference.data), PAGE) for _ in range(4)]
    metas = [page + 16 + offset for page in (0, PAGE) for offset in range(136)]
    anywhere = [rng.randrange(len(reference.data)) for _ in range(200)]
    refused = 0
    for offset in heads + metas + anywhere:
        kind, value = reference.flipped((offset, rng.randrange(1, 256)))
        refused += kind == "refused"
        assert kind == "refused" or value == reference.content
    assert refused > 100


@pytest.mark.slow
def test_several_flips_at_once_return_no_wrong_value(reference: Reference) -> None:
    rng = random.Random(5)
    for _ in range(100):
        flips = [(rng.randrange(len(reference.data)), rng.randrange(1, 256)) for _ in range(rng.randrange(2, 40))]
        kind, value = reference.flipped(*flips)
        assert kind == "refused" or value == reference.content


@pytest.mark.parametrize("size", [0, 1, 100, PAGE, 2 * PAGE, 5 * PAGE])
def test_a_file_that_was_cut_is_refused(reference: Reference, size: int) -> None:
    kind, text = reference.reader.ask((reference.path, reference.data[:size]))
    assert (kind, "the store" in text) == ("refused", True), text


def test_a_value_of_an_older_round_does_not_pass_for_the_present_one(reference: Reference) -> None:
    # The index entry of client 3, whole and with a sound checksum, as it was after round 2.
    folder = reference.path.parent / "older"
    store = disk_store(folder)
    play(store, ROUNDS[:2])
    store.close()
    older = {e.key: e for e in read_layout(folder / "data.mdb").entries["index"]}
    data = (folder / "data.mdb").read_bytes()
    key = struct.pack(">Q", 3)
    (now,) = (e for e in reference.entries["index"] if e.key == key)
    then = older[key]
    value = data[then.value_start : then.value_start + then.value_size]
    damaged = bytearray(reference.data)
    damaged[now.value_start : now.value_start + now.value_size] = value
    kind, text = reference.reader.ask((reference.path, bytes(damaged)))
    assert kind == "refused"
    assert "client 3 " in text


def test_a_store_that_lost_a_client_is_refused(tmp_path: Path) -> None:
    # Sound pages and sound values, and yet client 4 would count as a newcomer.
    store = disk_store(tmp_path / "state")
    play(store, ROUNDS)
    with store.file.writing() as tables:
        tables.delete("index", struct.pack(">Q", 4))
        tables.delete("states", struct.pack(">QQ", 4, 2))
    store.close()
    with pytest.raises(InputError, match=r"the index of clients in .* is damaged"):
        disk_store(tmp_path / "state")


def _gaps(reference: Reference) -> list[tuple[int, int]]:
    """Return the spans between the pointers and the nodes of the pages that hold a tree."""
    inside = [span[:2] for span in reference.spans(*reference.entries)]
    gaps = []
    for start in range(2 * PAGE, len(reference.data), PAGE):
        number, _, flags, lower, upper = struct.unpack_from("<QHHHH", reference.data, start)
        if number * PAGE == start and flags in (1, 2) and not any(a <= start < b for a, b in inside):
            gaps.append((start + lower, start + upper))
    return gaps
