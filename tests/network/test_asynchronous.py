"""Asynchronous runs: the synchronous one where nobody is late, books that balance, and the same bytes after a kill."""

import random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedadmm import FedADMM, FedAvg, FedDyn, InputError, LocalTraining, Scaffold
from fedadmm.algorithms.fedhybrid import FedHybrid
from fedadmm.core.optional import imbalance, invariant_of
from fedadmm.core.schedules import Step
from fedadmm.network.settings import Clock, Faults
from killed_runs import RunPlace
from methods import METHODS
from play import Watched, identical
from small_runs import outcome, simulation_of

SPEEDS = {"distribution": "log_uniform", "low": 5, "high": 100}
ROUNDS = 6
LATE = ("fedadmm", "fedsgd", "fedavg", "scaffold", "feddyn", "fedadmm, seen", "feddyn, seen, rising")


def clock_of(buffer: int, *, speed: Any = SPEEDS, **options: Any) -> Clock:
    return Clock(speed=speed, asynchronous={"buffer": buffer, **options})


def without_staleness(records):
    assert {record.pop("max_staleness") for record in records} == {0}
    assert {record.pop("mean_staleness") for record in records} == {0}
    return records


@pytest.mark.parametrize(
    ("name", "clock"),
    [
        ("fedavg", clock_of(6, speed=10.0)),  # a buffer for all six clients that are at work
        ("fedadmm, seen", clock_of(6, speed=10.0)),
        # Or a smaller one, and nobody may miss an update, whatever the speeds.
        *((name, clock_of(2, max_staleness=0)) for name in LATE),
    ],
)
def test_a_server_that_waits_for_everybody_is_synchronous_to_the_bit(name, clock):
    method = METHODS[name]
    # FedSGD takes one gradient, whatever it is asked for, and an asynchronous clock goes by what was asked for.
    options = {"engine": "serial"} | ({"local": LocalTraining(epochs=1)} if name == "fedsgd" else {})
    ours = outcome(simulation_of(method, clock=clock, **options), rounds=3)
    plain = outcome(simulation_of(method, clock=Clock(speed=clock.speed), **options), rounds=3)
    assert identical(ours[:2], plain[:2])
    seconds = [record.pop("simulated_seconds") for record in ours[2]]
    assert seconds == pytest.approx([record.pop("simulated_seconds") for record in plain[2]])
    assert without_staleness(ours[2]) == plain[2]


@pytest.mark.slow
def test_workers_are_serial_to_the_bit_and_a_stack_is_near():
    serial, workers = (
        outcome(simulation_of(FedDyn(), engine=name, clock=clock_of(2), workers=2), rounds=ROUNDS)
        for name in ("serial", "workers")
    )
    assert identical(workers, serial)
    assert max(record["max_staleness"] for record in serial[2]) >= 2  # else this would prove little
    options = {"clock": clock_of(2), "model": "mlp"}
    stacked, serial = (
        outcome(simulation_of(FedADMM(eta="seen"), engine=name, **options), rounds=ROUNDS)
        for name in ("stacked", "serial")
    )
    assert [record["clients"] for record in stacked[2]] == [record["clients"] for record in serial[2]]
    torch.testing.assert_close(stacked[0][1].theta, serial[0][1].theta, rtol=0, atol=1e-5)


def test_a_client_works_on_the_theta_that_it_was_sent():
    thetas, seen = [], []
    watched = Watched(FedAvg(), on_client=lambda server, **_: seen.append(server.theta.clone()))
    simulation = simulation_of(watched, engine="serial", clock=clock_of(1), participation=0.5)
    seen.clear()  # of trying the algorithm out
    for _ in range(ROUNDS):
        thetas.append(simulation.theta.clone())
        record = simulation.advance()
        (theirs,) = seen
        seen.clear()
        version = record.round - 1 - record.max_staleness
        assert torch.equal(theirs, thetas[version])
    assert any(record.max_staleness for record in simulation.history)


BALANCED = {
    "fedadmm, participation": METHODS["fedadmm, participation"],
    "fedadmm, seen": METHODS["fedadmm, seen"],
    "feddyn": FedDyn(over="all"),
    "feddyn, rho rising": FedDyn(rho=Step(before=0.1, after=0.3, at_round=3)),
    "scaffold": Scaffold(),
    **{name: METHODS[name] for name in ("fedvarp", "mifa", "afedpd", "feddc")},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BALANCED)
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(seed=st.integers(0, 100), buffer=st.integers(1, 6), limit=st.none() | st.integers(1, 4))
def test_books_balance_after_any_number_of_updates_at_any_speeds(name, seed, buffer, limit):
    method = BALANCED[name]
    simulation = simulation_of(
        method, engine="serial", seed=seed, clock=clock_of(buffer, max_staleness=limit), model="softmax_regression"
    )
    initial = simulation.theta.clone()
    for _ in range(8):
        simulation.advance()
    registered = simulation.weights.total
    invariant = invariant_of(method, simulation.checkpoint.server, initial=initial, registered=registered)
    states = [(simulation.weights(client), simulation._store.get(client)) for client in simulation._store]
    assert imbalance(invariant, states, registered=registered) < 2e-6
    if limit is not None:
        assert max(record.max_staleness for record in simulation.history) <= limit


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_an_asynchronous_run_goes_on_where_it_stopped(tmp_path, stop):
    options = {"engine": "serial", "clock": clock_of(2)}
    whole = outcome(simulation_of(FedDyn(), **options), rounds=ROUNDS)
    stopped = simulation_of(FedDyn(), folder=tmp_path / "state", **options)
    outcome(stopped, rounds=stop)
    stopped._store.close()
    resumed = simulation_of(FedDyn(), folder=tmp_path / "state", **options)
    assert identical(outcome(resumed, rounds=ROUNDS - stop), whole)
    store = resumed._store
    assert sorted(store.older_checkpoints()) == [round for round in resumed._engine.took.in_use if round]
    assert all(checkpoint.round == round for round, checkpoint in store.older_checkpoints().items())


@pytest.mark.slow
def test_an_asynchronous_run_killed_at_random_instants_ends_with_the_same_bytes(tmp_path):
    place = RunPlace.made(tmp_path)
    # Its rounds are short: with more of them some are left to be killed on a fast machine, too.
    plan = (tmp_path / "plan.toml").read_text().replace("rounds = 30", "rounds = 150")
    assert "rounds = 150" in plan
    (tmp_path / "plan.toml").write_text(
        plan + '[clock]\nasynchronous = {buffer = 2}\nspeed = {distribution = "log_uniform", low = 1, high = 20}\n'
    )
    assert place.run("whole") == 0, place.said
    rng = random.Random(0)
    kills = place.killed_again_and_again("killed", rng=rng)
    assert kills >= 3
    assert place.result("killed") == place.result("whole")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"faults": Faults()}, "an asynchronous server meets no faults"),
        ({"engine": "ray"}, 'use "workers" with clock.asynchronous'),
        ({"participation": [0.5] * 8}, "give participation as a fraction"),
        ({"clock": clock_of(7)}, "buffer=7 uploads never arrive: participation=0.75 keeps 6 clients at work"),
    ],
)
def test_what_cannot_be_asynchronous_is_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        simulation_of(FedAvg(), **{"clock": clock_of(2), **options})


@pytest.mark.parametrize("clock", [clock_of(2), Clock(speed=1.0, deadline=5.0)])
def test_a_method_that_needs_everyone_has_to_wait(clock):
    with pytest.raises(InputError, match="FedHybrid needs every client in every round, and this clock does not wait"):
        simulation_of(FedHybrid(), clock=clock, participation=1.0, model="softmax_regression")
