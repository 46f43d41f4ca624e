"""The reader of LMDB's pages accepts every file that LMDB writes, and finds what would mislead LMDB."""

import random
import struct
from pathlib import Path

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_stores import disk_store, play

from fedadmm.state.encoding import DamagedError
from fedadmm.state.pages import read_layout

PAGE = 4096
sizes = st.sampled_from([0, 1, 7, 900, 2000, 2100, 4079, 4080, 5000, 20_000])
changes = st.lists(st.dictionaries(st.integers(0, 60), st.none() | sizes, max_size=25), min_size=1, max_size=8)


@pytest.mark.slow
@given(transactions=changes)
def test_it_reads_what_lmdb_wrote(
    tmp_path_factory: pytest.TempPathFactory, transactions: list[dict[int, int | None]]
) -> None:
    folder = tmp_path_factory.mktemp("pages")
    expected: dict[bytes, bytes] = {}
    rng = random.Random(0)
    with lmdb.open(str(folder), max_dbs=2, map_size=1 << 28, sync=False) as env:
        table = env.open_db(b"states")
        for transaction in transactions:
            with env.begin(write=True) as writer:
                for number, size in transaction.items():
                    key = struct.pack(">Q", number) * (1 + number % 3)
                    if size is None:
                        writer.delete(key, db=table)
                        expected.pop(key, None)
                    else:
                        expected[key] = rng.randbytes(size)
                        writer.put(key, expected[key], db=table)
    data = (folder / "data.mdb").read_bytes()
    layout = read_layout(folder / "data.mdb")
    found = {e.key: data[e.value_start : e.value_start + e.value_size] for e in layout.entries["states"]}
    assert found == expected
    assert layout.unsorted is None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a sound file in which pages were freed."""
    store = disk_store(tmp_path / "state")
    play(store, [[1, 3, 5], [1, 3], [2, 5], [1]])
    store.close()
    return tmp_path / "state" / "data.mdb"


def _change(path: Path, offset: int, form: str, value: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, offset, value)
    path.write_bytes(data)


def _newest_meta(path: Path) -> int:
    ids = [struct.unpack_from("<Q", path.read_bytes(), page * PAGE + 144)[0] for page in (0, 1)]
    return ids.index(max(ids)) * PAGE


def test_a_meta_page_that_would_take_lmdb_back_is_found(file: Path) -> None:
    older = PAGE - _newest_meta(file)
    _change(file, older + 144, "<Q", 1000)
    with pytest.raises(DamagedError, match="on the meta pages"):
        read_layout(file)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_free_page_that_is_in_use_is_found(file: Path, number: int) -> None:
    start = _free_list_value(file)
    _change(file, start + 8, "<Q", number)
    with pytest.raises(DamagedError, match=f"page {number} is used twice"):
        read_layout(file)


def test_a_page_that_is_lost_is_found(file: Path) -> None:
    start = _free_list_value(file)
    (count,) = struct.unpack_from("<Q", file.read_bytes(), start)
    _change(file, start, "<Q", count - 1)
    with pytest.raises(DamagedError, match="neither in use nor free"):
        read_layout(file)


def test_a_tree_with_another_count_is_found(file: Path) -> None:
    _change(file, _newest_meta(file) + 88 + 32, "<Q", 5)  # the entries of the main table, which are four
    with pytest.raises(DamagedError, match="the list of tables counts"):
        read_layout(file)


def _free_list_value(path: Path) -> int:
    """Return where the first value of the free list is, which stands on one leaf."""
    data, meta = path.read_bytes(), _newest_meta(path)
    depth, root = struct.unpack_from("<H", data, meta + 46)[0], struct.unpack_from("<Q", data, meta + 80)[0]
    assert depth == 1
    node = root * PAGE + struct.unpack_from("<H", data, root * PAGE + 16)[0]
    return node + 8 + 8
