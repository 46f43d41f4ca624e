"""Both stores keep what they are given, and nothing of a round that was not committed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_stores import Client, a_checkpoint, a_state, content, disk_store, play

from fedadmm.core.engine import Store, state_types
from fedadmm.runs.simulation import Simulation
from fedadmm.state.disk import DiskStore
from fedadmm.state.memory import MemoryStore
from fedadmm.training.local import LocalTraining
from methods import METHODS, mostly_slow
from play import identical
from worlds import made, network, some_data

MakeStore = Callable[..., Store]


@pytest.fixture(params=["memory", "disk"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Return a function that makes an empty store."""
    opened: list[DiskStore] = []

    def make(float_type: torch.dtype | None = None) -> Store:
        if request.param == "memory":
            return MemoryStore(float_type=float_type)
        opened.append(disk_store(tmp_path / f"state{len(opened)}", float_type=float_type))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def test_an_empty_store_holds_nothing(make_store: MakeStore) -> None:
    store = make_store()
    assert (store.checkpoint(), store.records(), len(store), list(store)) == (None, [], 0, [])
    assert store.get(0) is None


def test_a_state_counts_once_its_round_is_committed(make_store: MakeStore) -> None:
    store = make_store()
    store.stage(1, 7, a_state(7, 1))
    assert store.get(7) is None
    store.commit(a_checkpoint(1), clients=[7], record={"round": 1})
    assert identical(store.get(7), a_state(7, 1))
    assert isinstance(store.get(7), Client)
    store.stage(2, 7, a_state(7, 2))
    assert identical(store.get(7), a_state(7, 1))


def test_many_states_are_those_of_each(make_store: MakeStore) -> None:
    store = make_store()
    play(store, [[2, 3]])
    store.stage_many(2, {client: a_state(client, 2) for client in (1, 3)})
    before = store.get_many([3, 5, 2])
    assert before[1] is None
    assert identical((before[0], before[2]), (a_state(3, 1), a_state(2, 1)))
    store.commit(a_checkpoint(2), clients=[1, 3], record={"round": 2})
    for client, state in zip((1, 2, 3), store.get_many([1, 2, 3]), strict=True):
        assert isinstance(state, Client)
        assert identical(state, a_state(client, 1 if client == 2 else 2))


def test_a_client_whose_update_was_not_applied_keeps_its_state(make_store: MakeStore) -> None:
    store = make_store()
    play(store, [[1, 2]])
    store.stage(2, 1, a_state(1, 2))
    store.stage(2, 3, a_state(3, 2))
    store.commit(a_checkpoint(2), clients=[3], record={"round": 2})
    assert identical(store.get(1), a_state(1, 1))
    assert list(store) == [1, 2, 3]


@pytest.mark.slow
@given(rounds=st.lists(st.lists(st.integers(0, 9), unique=True).map(sorted), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_the_stores_agree_and_the_disk_does_so_when_opened_again(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("store") / "state"
    memory, disk = MemoryStore(), disk_store(folder)
    play(memory, rounds)
    play(disk, rounds)
    assert content(disk) == content(memory)
    disk.close()
    again = disk_store(folder)
    assert content(again) == content(memory)
    again.close()


def test_bfloat16_rounds_the_vectors_of_a_state_once(make_store: MakeStore) -> None:
    store = make_store(torch.bfloat16)
    play(store, [[1]])
    written, read = a_state(1, 1), store.get(1)
    assert read is not None
    assert read.w.dtype == torch.float32
    assert torch.equal(read.w, written.w.bfloat16().float())
    assert torch.equal(read.y, written.y.bfloat16().float())
    assert not torch.equal(read.w, written.w)
    assert read.rho == written.rho
    # The server's checkpoint is never rounded.
    assert torch.equal(store.checkpoint().server.theta, a_checkpoint(1).server.theta)


def test_bfloat16_halves_the_file(tmp_path: Path) -> None:
    sizes = {}
    for float_type in (None, torch.bfloat16):
        store = disk_store(tmp_path / str(float_type), float_type=float_type)
        for client in range(20):
            store.stage(1, client, a_state(client, 1, size=20_000))
        store.close()
        sizes[float_type] = (tmp_path / str(float_type) / "data.mdb").stat().st_size
    assert sizes[torch.bfloat16] < 0.53 * sizes[None]


@pytest.mark.parametrize("float_type", [None, torch.bfloat16])
@pytest.mark.parametrize(
    "method", mostly_slow(["fedadmm, participation", "scaffold", "feddyn", "fedavg"], plain=["scaffold"])
)
def test_the_result_does_not_depend_on_the_store(method: str, float_type: torch.dtype | None, tmp_path: Path) -> None:
    def result(store: Store) -> Simulation:
        simulation = Simulation(
            METHODS[method],
            model=made(network),
            data=some_data([8, 10, 6, 12]),
            local=LocalTraining(batch_size=4),
            participation=0.5,
            seed=1,
            open_store=lambda *_: store,
        )
        for _ in range(4):
            simulation.advance()
        return simulation

    memory = MemoryStore(float_type=float_type)
    expected = result(memory)
    algorithm = METHODS[method]
    store = disk_store(tmp_path / "run", types=state_types(algorithm), float_type=float_type)
    found = result(store)
    assert identical(found.checkpoint, expected.checkpoint)
    assert [identical(store.get(c), memory.get(c)) for c in store] == [True] * len(memory)
    store.close()
