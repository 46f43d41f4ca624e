"""A client is told whether it comes for the first time, and in which round it counted last, wherever it runs."""

from pathlib import Path
from typing import Any

import pytest

from fedadmm import Simulation
from fedadmm.network.settings import Clock, Faults
from ray_here import use_ray_here
from small_runs import simulation_of
from told import Told
from worlds import made, perceptron

ENGINES = ["serial", "workers", "stacked", "ray"]
FAULTS = Faults(lose_requests=0.15, lose_replies=0.2, duplicate=0.3, delay=0.15, away=0.1)
CLOCK = Clock(speed={"distribution": "log_uniform", "low": 2, "high": 40}, asynchronous={"buffer": 2})


@pytest.fixture(autouse=True)
def _ray_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_here(monkeypatch, num_cpus=2)


def _run(engine: str, **options: Any) -> Simulation:
    return simulation_of(Told(), engine=engine, workers=2, model=made(perceptron), **{"participation": 0.5, **options})


def _played(simulation: Simulation, rounds: int) -> Simulation:
    for _ in range(rounds):
        simulation.advance()
    simulation.close()
    return simulation


def _check(simulation: Simulation) -> None:
    """Compare what clients were told with the records; enough of them must have come again for that to say much."""
    store = simulation._store
    last = {client: record.round for record in simulation.history for client in record.clients}
    assert {client: store.round_of(client) for client in store} == last
    assert {client: store.get(client) for client in store} == {client: (last[client], 0.0) for client in store}
    visits = sum(len(record.clients) for record in simulation.history)
    assert visits > 2 * len(last)
    assert store.round_of(99) is None


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_and_store_tells_it(engine: str, on_disk: bool, tmp_path: Path) -> None:
    _check(_played(_run(engine, folder=tmp_path / "state" if on_disk else None), 6))


@pytest.mark.parametrize("engine", ["serial", "workers", "stacked"])
def test_it_is_told_with_faults(engine: str) -> None:
    simulation = _played(_run(engine, faults=FAULTS, participation=0.9), 8)
    assert any(record.lost for record in simulation.history)
    _check(simulation)


@pytest.mark.parametrize("engine", ["serial", "workers", "stacked"])
def test_it_is_told_by_an_asynchronous_server(engine: str) -> None:
    simulation = _played(_run(engine, clock=CLOCK), 16)
    assert any(record.max_staleness for record in simulation.history)
    _check(simulation)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["serial", "workers", "stacked"])
def test_it_is_told_after_a_run_was_resumed(engine: str, tmp_path: Path) -> None:
    first = _played(_run(engine, folder=tmp_path / "state"), 3)
    first._store.close()
    _check(_played(_run(engine, folder=tmp_path / "state"), 4))
