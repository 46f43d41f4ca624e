"""Runs whose clients differ in solver, tolerance and speed: the same on every engine, and told in the record."""

from typing import Any

import numpy as np
import pytest

from fedadmm import FedADMM, FedAvg, InputError, LocalTraining, Record, Scaffold, Simulation, federate, load
from fedadmm.data import PartitionedData
from play import identical
from ray_here import use_ray_here
from small_runs import outcome

SOLVERS = ["sgd", "gd", "lbfgs"] * 3
EPSILON = [f"epsilon_{how}" for how in ("min", "median", "max")]
STEPS = [f"steps_{how}" for how in ("min", "median", "max")]


@pytest.fixture(scope="module")
def data() -> PartitionedData:
    return federate(load("digits"), num_clients=9, partition="shards", seed=0)


def run_of(data: PartitionedData, *, engine: str = "serial", method: Any = None, **local: Any) -> Simulation:
    return Simulation(
        method or FedADMM(rho=0.5, eta="seen"),
        model="softmax_regression",
        data=data,
        local=LocalTraining(**{"epochs": 5, "batch_size": 50, "solver": SOLVERS} | local),
        participation=0.7,
        seed=1,
        engine=engine,
        workers=2,
    )


@pytest.mark.slow
def test_sgd_gd_and_lbfgs_are_mixed_in_one_run_and_workers_have_the_serial_bytes(data) -> None:
    settings = {"tolerance": {"schedule": "power", "start": 0.05, "power": 2}, "epochs": "3..9"}
    serial, workers = (outcome(run_of(data, engine=engine, **settings), rounds=3) for engine in ("serial", "workers"))
    assert identical(serial, workers)
    assert set(EPSILON + STEPS) <= set(serial[2][0])
    last = serial[2][-1]
    assert last["epsilon_min"] <= last["epsilon_median"] <= last["epsilon_max"]
    assert last["steps_min"] < last["steps_max"]


@pytest.mark.slow
def test_a_mixed_run_on_ray_says_the_same_of_its_clients(data, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_here(monkeypatch, num_cpus=2)
    serial, ray = (outcome(run_of(data, engine=engine, tolerance=0.01), rounds=1)[2] for engine in ("serial", "ray"))
    keys = [*EPSILON, *STEPS, "gradient_evaluations"]
    assert [serial[0][key] for key in keys] == [ray[0][key] for key in keys]


@pytest.mark.slow
def test_what_clients_reached_is_below_what_they_were_asked_for(data) -> None:
    run = run_of(data, solver="lbfgs", epochs=400, tolerance={"schedule": "power", "start": 0.01, "power": 2})
    for number in (1, 2, 3):
        record = run.advance()
        assert 0 < record.metrics["epsilon_max"] <= 0.01 / number**2
        assert record.metrics["steps_max"] < 400
    assert Record.from_json(record.to_json()) == record


def test_a_record_keeps_its_keys_where_nobody_asked(data) -> None:
    usual = run_of(data, solver=None).advance().to_json()
    assert not set(EPSILON + STEPS) & set(usual)
    measured = run_of(data, solver=None, tolerance=1e-30).advance().to_json()
    assert set(measured) - set(usual) == set(EPSILON + STEPS)
    # A check does not change what is learnt, and costs a pass over all examples after each epoch.
    assert measured["loss"] == usual["loss"]
    assert measured["gradient_evaluations"] == 2 * usual["gradient_evaluations"]


def test_a_slow_device_does_less(data) -> None:
    speeds = [20.0, 2000.0, 200.0] * 3
    run = run_of(data, solver=None, seconds=1.0, speed=speeds, epochs=100)
    assert {a.client: a.max_gradients for a in run.assignments(1)} == {
        a.client: int(speeds[a.client]) for a in run.assignments(1)
    }
    run.advance()
    steps = {a.client: visit.stats for a, visit in zip(run.assignments(2), visits_of(run, 2), strict=True)}
    sizes = data.num_examples
    for client, stats in steps.items():
        assert stats.gradient_evaluations <= max(speeds[client], 50)
        assert stats.gradient_evaluations > min(speeds[client], 100 * sizes[client]) - 50


def visits_of(run: Simulation, round: int) -> list[Any]:
    download = run.algorithm.download(run.checkpoint.server)
    return list(run._engine.run(download, buffers=run.checkpoint.buffers, assignments=run.assignments(round)))


def test_a_speed_may_be_a_fact_of_the_devices(data) -> None:
    options = {"model": "softmax_regression", "data": data, "participation": 1.0, "seed": 0, "engine": "serial"}
    local = LocalTraining(seconds=3.0, speed="pace")
    run = Simulation(FedAvg(), local=local, devices={"pace": np.arange(1, 10)}, **options)
    assert [a.max_gradients for a in run.assignments(1)] == [3 * (client + 1) for client in range(9)]
    with pytest.raises(InputError, match="speed='pace' is not a fact of the devices, which have num_examples"):
        Simulation(FedAvg(), local=local, **options)


@pytest.mark.parametrize("limits", [{"solver": "gd"}, {"tolerance": 1.0}, {"max_steps": 3}], ids=str)
def test_a_stack_runs_epochs_of_sgd_and_says_so(data, limits: dict[str, Any]) -> None:
    settings = {"solver": None} | limits
    with pytest.raises(InputError, match=f"a stack runs epochs of SGD, and local has {next(iter(limits))}; use eng"):
        run_of(data, engine="stacked", **settings)
    assert run_of(data, engine="auto", **settings).engine.name == "workers"
    assert run_of(data, engine="auto", solver=None).engine.name == "stacked"


def test_scaffold_takes_the_steps_that_were_taken_and_refuses_what_are_no_steps(data) -> None:
    with pytest.raises(InputError, match="Scaffold needs plain SGD, and local has solver='lbfgs'; use \"sgd\" or"):
        run_of(data, method=Scaffold())
    record = run_of(data, method=Scaffold(), solver=["sgd", "gd", "gd"] * 3, tolerance=1e6).advance()
    assert record.metrics["steps_min"] == 0  # accurate enough at the start
    assert record.refused == ()
