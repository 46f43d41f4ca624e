"""A simulation with [faults] is the simulation in which the clients concerned were not selected."""

from pathlib import Path
from typing import Any

import pytest

from fedadmm import Experiment, FedADMM, InputError
from fedadmm.algorithms import ALGORITHMS
from fedadmm.network.settings import Faults
from fedadmm.runs.records import Record
from fedadmm.runs.runner import run
from fedadmm.state.disk import DiskStore
from methods import ON_NETWORKS, mostly_slow
from play import identical
from small_runs import outcome, simulation_of

FAULTS = Faults(lose_requests=0.15, lose_replies=0.2, duplicate=0.3, delay=0.15, away=0.1)
ROUNDS = 6


def without(records: list[dict[str, Any]]) -> Any:
    """Return the participation rule that selects whose updates were applied, and nobody else."""
    return lambda number, generator, devices: records[number - 1]["clients"]


@pytest.mark.parametrize("name", mostly_slow(name for name in ALGORITHMS if name in ON_NETWORKS))
def test_a_lossy_run_is_the_lossless_one_without_those_that_were_lost(name: str) -> None:
    method = ALGORITHMS[name]()
    checkpoint, states, records = outcome(simulation_of(method, engine="serial", faults=FAULTS), rounds=ROUNDS)
    assert sum(len(record.get("lost", ())) for record in records) > ROUNDS  # else this would prove little
    lossless = simulation_of(method, engine="serial", participation=without(records))
    expected, expected_states, _ = outcome(lossless, rounds=ROUNDS)
    assert identical(checkpoint, expected)
    assert identical(states, expected_states)


@pytest.mark.parametrize("fault", ["lose_requests", "lose_replies", "delay", "away"])
def test_when_every_message_meets_a_fault_nothing_is_applied(fault: str) -> None:
    simulation = simulation_of(FedADMM(), engine="serial", faults=Faults(**{fault: 1.0}))
    before = tuple(simulation.checkpoint)
    (_, *after), states, records = outcome(simulation, rounds=ROUNDS)
    assert identical(after, list(before[1:]))
    assert states == {}
    assert [len(record["lost"]) for record in records] == [6] * ROUNDS  # 0.75 of 8 clients


@pytest.mark.slow
def test_when_every_message_is_doubled_nothing_changes() -> None:
    doubled, plain = (
        outcome(simulation_of(FedADMM(), engine="serial", faults=faults), rounds=ROUNDS)
        for faults in (Faults(duplicate=1.0), None)
    )
    assert identical(doubled, plain)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["workers", "stacked"])
def test_every_engine_loses_the_same_clients(engine: str) -> None:
    ours, serial = (
        outcome(simulation_of(FedADMM(), engine=name, faults=FAULTS, model="mlp", workers=2), rounds=ROUNDS)[2]
        for name in (engine, "serial")
    )
    assert [(r["clients"], r.get("lost")) for r in ours] == [(r["clients"], r.get("lost")) for r in serial]


@pytest.mark.slow
def test_a_lossy_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = outcome(simulation_of(FedADMM(), engine="serial", faults=FAULTS), rounds=ROUNDS)
    stopped = simulation_of(FedADMM(), engine="serial", faults=FAULTS, folder=tmp_path / "state")
    outcome(stopped, rounds=ROUNDS // 2)
    stopped._store.close()
    resumed = simulation_of(FedADMM(), engine="serial", faults=FAULTS, folder=tmp_path / "state")
    assert identical(outcome(resumed, rounds=ROUNDS - ROUNDS // 2), whole)


def test_states_of_lost_replies_leave_no_garbage(tmp_path: Path) -> None:
    simulation = simulation_of(FedADMM(), engine="serial", faults=FAULTS, folder=tmp_path / "state")
    outcome(simulation, rounds=ROUNDS)
    store = simulation._store
    assert isinstance(store, DiskStore)
    with store.file.reading() as tables:
        assert len(tables.keys("states")) == len(store)


def test_faults_are_part_of_what_determines_a_run_and_none_are_not() -> None:
    plain = Experiment()
    assert plain.hash == Experiment(faults=None).hash
    assert plain.hash != Experiment(faults={"lose_replies": 0.1}).hash
    assert "faults" not in plain.to_toml()


def test_faults_come_back_from_the_run_folder(tmp_path: Path) -> None:
    table = {"rounds": 2, "data": {"num_clients": 20}, "model": {"name": "softmax_regression"}, "engine": "serial"}
    experiment = Experiment(**table, faults={"lose_replies": 0.5, "away": 0.25})
    ended = run(experiment, out=tmp_path)
    assert ended.folder.read_experiment() == experiment
    assert [Record.from_json(line) for line in ended.folder.read_records()] == ended.history


def test_ray_is_refused_with_faults() -> None:
    with pytest.raises(InputError, match='use "workers" with faults'):
        simulation_of(FedADMM(), engine="ray", faults=FAULTS)
