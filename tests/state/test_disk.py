"""The store on disk: made whole, shared with worker processes, reclaimed, and full."""

import os
import pickle
import resource
import signal
from pathlib import Path
from typing import Any

import lmdb
import pytest
import torch
from small_stores import Client, a_checkpoint, a_state, content, disk_store, play

from children import start
from fedadmm.core.errors import InputError
from fedadmm.state import file as state_file
from fedadmm.state import tables as state_tables
from fedadmm.state.disk import DiskStore
from fedadmm.state.file import StateFile
from play import identical

ROUNDS = [[1, 2], [2, 3]]


def _size(store_folder: Path) -> int:
    return (store_folder / "data.mdb").stat().st_size


def test_a_store_that_was_not_made_whole_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            disk_store(tmp_path / "state")
    assert not (tmp_path / "state").exists()
    store = disk_store(tmp_path / "state")
    assert len(store) == 0
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_an_empty_data_file_is_refused_and_not_taken_for_a_new_run(tmp_path: Path) -> None:
    store = disk_store(tmp_path / "state")
    play(store, [[1]])
    store.close()
    (tmp_path / "state" / "data.mdb").write_bytes(b"")
    with pytest.raises(InputError, match=r"data\.mdb is empty"):
        disk_store(tmp_path / "state")
    (tmp_path / "state" / "data.mdb").unlink()
    with pytest.raises(InputError, match="No such file"):
        disk_store(tmp_path / "state")


def test_a_store_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run the experiment first"):
        disk_store(tmp_path / "state", readonly=True)


def test_the_state_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    disk_store(tmp_path / "state").close()
    with pytest.raises(InputError, match="written with fields Server theta; Client w, y, rho, here it is"):
        disk_store(tmp_path / "state", types=(Client, Client))


def test_a_store_is_read_without_writing_a_byte(tmp_path: Path) -> None:
    store = disk_store(tmp_path / "state")
    play(store, [[1, 2], [2]])
    store.stage(3, 1, a_state(1, 3))
    expected = content(store)
    store.close()
    (tmp_path / "state" / "lock.mdb").unlink()
    before = (tmp_path / "state" / "data.mdb").read_bytes()
    reader = disk_store(tmp_path / "state", readonly=True, identity=None)
    assert content(reader) == expected
    reader.close()
    assert (tmp_path / "state" / "data.mdb").read_bytes() == before
    assert not (tmp_path / "state" / "lock.mdb").exists()


def test_what_no_round_refers_to_is_reclaimed(tmp_path: Path) -> None:
    store = disk_store(tmp_path / "state")
    play(store, [list(range(20))] * 4)
    size = _size(tmp_path / "state")
    play(store, [list(range(20))] * 20, first=5)
    assert _size(tmp_path / "state") == size  # replaced states leave their room to the next
    for client in range(20):
        store.stage(25, client, a_state(client, 25))
    store.close()
    store = disk_store(tmp_path / "state")
    with store.file.reading() as tables:
        assert len(tables.keys("states")) == 20
    store.close()


def test_a_large_state_is_written_in_pieces_and_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(whole := disk_store(tmp_path / "whole"), ROUNDS)
    # 5,600 bytes and a description of 60 or so are 57 pieces of 100, more than a transaction takes; 40 and it are one.
    monkeypatch.setattr(state_tables, "PIECE", 100)
    monkeypatch.setattr(state_file, "PIECES_AT_ONCE", 20)
    play(store := disk_store(tmp_path / "state"), ROUNDS)
    with store.file.reading() as tables:
        keys = tables.keys("states")
    assert {client: sum(key[7] == client for key in keys) for client in (1, 2, 3)} == {1: 57, 2: 1, 3: 57}
    assert content(store) == content(whole)
    whole.close()
    store.stage(3, 1, a_state(1, 3))
    store.close()  # and what was written ahead, in pieces too, is reclaimed
    store = disk_store(tmp_path / "state")
    with store.file.reading() as tables:
        assert tables.keys("states") == keys
    with store.file.writing() as tables:
        tables.delete("states", keys[30])
    with pytest.raises(InputError, match=r"the state of client 1 .*damaged \(a part of it is missing\)"):
        store.get(1)
    store.close()
    with pytest.raises(InputError, match=r"the state of client 1 .*missing"):
        disk_store(tmp_path / "state")


@pytest.mark.slow
def test_worker_processes_read_and_write_ahead(tmp_path: Path) -> None:
    store = disk_store(tmp_path / "state")
    play(store, [[1, 2]])
    worker = start(_work, pickle.dumps(store.file), 2, [1, 5])
    worker.join(60)
    assert worker.exitcode == 0
    assert identical(store.get(1), a_state(1, 1))
    store.commit(a_checkpoint(2), clients=[1, 5], record={"round": 2})
    assert identical(store.get(1), a_state(1, 2))
    assert identical(store.get(5), a_state(5, 2))
    store.close()


def _work(pickled: bytes, round: int, clients: list[int]) -> None:
    _work_on(pickle.loads(pickled), round, clients)


def _work_on(file: StateFile, round: int, clients: list[int]) -> None:
    assert identical(file.get_version(1, 1), a_state(1, 1))
    for client in clients:
        file.stage(round, client, a_state(client, round))


@pytest.mark.slow
def test_a_forked_worker_opens_the_file_for_itself_and_its_parent_goes_on(tmp_path: Path) -> None:
    parent = start(_fork_and_work, tmp_path / "state")
    parent.join(60)
    assert parent.exitcode == 0


def _fork_and_work(folder: Path) -> None:
    store = disk_store(folder)
    play(store, [[1, 2]])
    for round in (2, 3):
        child = os.fork()
        if not child:
            with pytest.raises(AssertionError, match=r"opened before a fork; use StateFile\.own\(\)"):
                store.get(1)
            own = store.file.own()
            assert own.own() is own
            _work_on(own, round, [5])
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert identical(store.get(1), a_state(1, 1))
        store.commit(a_checkpoint(round), clients=[5], record={"round": round})
        assert identical(store.get(5), a_state(5, round))
    with store.file.reading():  # the parent's own reader is known, so nobody writes over what it reads
        assert str(os.getpid()) in store.file._env.readers()


@pytest.mark.slow
@pytest.mark.parametrize("doing", ["reading", "writing"])
def test_a_worker_killed_in_the_middle_holds_nothing_up(tmp_path: Path, doing: str) -> None:
    store = disk_store(tmp_path / "state")
    play(store, [[1, 3]] * 3)
    size = _size(tmp_path / "state")
    worker = start(_die_reading if doing == "reading" else _die_writing, pickle.dumps(store.file))
    worker.join(60)
    assert worker.exitcode == -signal.SIGKILL
    play(store, [[1, 3]] * 20, first=4)
    assert identical(store.get(3), a_state(3, 23))
    assert _size(tmp_path / "state") < 2 * size  # a reader that is believed alive would keep every old page
    store.close()


def _die_reading(pickled: bytes) -> None:
    with pickle.loads(pickled).reading():
        os.kill(os.getpid(), signal.SIGKILL)


def _die_writing(pickled: bytes) -> None:
    with pickle.loads(pickled).writing() as tables:
        tables.put("states", b"0" * 16, b"half of something")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_power_puts_a_round_on_the_disk_and_process_leaves_that_to_the_kernel(tmp_path: Path) -> None:
    calls: dict[str, int] = {}
    for durability in ("process", "power"):
        trace = tmp_path / f"{durability}.txt"
        writer = start(_count_syncs, tmp_path / durability, durability, trace)
        writer.join(60)
        assert writer.exitcode == 0
        calls[durability] = int(trace.read_text())
    # With "power" LMDB itself puts the pages of each transaction on the disk; the commit adds its meta page.
    assert calls == {"process": 0, "power": 1}


def _count_syncs(folder: Path, durability: Any, trace: Path) -> None:
    store = disk_store(folder, durability=durability)
    synced = 0
    environment = store.file._env

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(environment, name)

        def sync(self, force: bool) -> None:
            nonlocal synced
            synced += 1
            environment.sync(force)

    store.file._env = Watched()
    assert environment.flags()["sync"] is (durability == "power")
    play(store, [[1, 2]])
    trace.write_text(str(synced))


def test_a_full_store_is_one_sentence_and_the_round_before_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_store(tmp_path / "state")
    play(store, [[1]])
    expected = content(store)
    store.close()
    monkeypatch.setattr(state_file, "MAP_SIZE", _size(tmp_path / "state") + 8 * 4096)
    store = disk_store(tmp_path / "state")
    with pytest.raises(InputError, match="the most that a store holds here; keep the state as bfloat16"):
        play(store, [list(range(100))], first=2)
    assert content(store) == expected
    store.close()


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_the_round_before_is_there(tmp_path: Path) -> None:
    store = disk_store(tmp_path / "state")
    play(store, [[1]])
    expected = content(store)
    store.close()
    writer = start(_fill_the_disk, tmp_path / "state", _size(tmp_path / "state") + 8 * 4096)
    writer.join(60)
    assert writer.exitcode == 0
    store = disk_store(tmp_path / "state")
    assert content(store) == expected
    play(store, [list(range(50))], first=2)
    assert len(store) == 50
    store.close()


def _fill_the_disk(folder: Path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    store: DiskStore = disk_store(folder)
    with pytest.raises(InputError, match="is the disk full"):
        play(store, [list(range(50))], first=2)
    assert identical(store.get(1), a_state(1, 1))


def test_a_damaged_value_is_an_error_that_names_the_client_and_the_remedy(tmp_path: Path) -> None:
    store = disk_store(tmp_path / "state")
    play(store, [[4]])
    data = bytearray((tmp_path / "state" / "data.mdb").read_bytes())
    at = data.find(a_state(4, 1).w.numpy().tobytes())
    data[at] ^= 1
    store.close()
    (tmp_path / "state" / "data.mdb").write_bytes(data)
    store = disk_store(tmp_path / "state")
    for read in (lambda: store.get(4), lambda: store.get_many([3, 4])):
        with pytest.raises(InputError, match=r"the state of client 4 in .* is damaged; restore the run folder"):
            read()
    store.close()


def test_the_file_is_an_ordinary_lmdb_environment(tmp_path: Path) -> None:
    store = disk_store(tmp_path / "state", initial=torch.zeros(3))
    play(store, [[1]])
    store.close()
    with lmdb.open(str(tmp_path / "state"), readonly=True, max_dbs=4) as env, env.begin() as transaction:
        tables = [key for key, _ in transaction.cursor()]
    assert tables == [b"index", b"meta", b"records", b"states"]
