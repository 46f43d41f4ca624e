"""FedPD: all compute in every round, and who does not communicate sends and receives nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedadmm import Experiment, FedPD, InputError, Simulation
from fedadmm.algorithms import fedpd
from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.network.settings import Faults
from fedadmm.runs.check import findings
from fedadmm.runs.runner import run
from play import Play, identical
from quadratics import on_a_line
from ray_here import use_ray_here
from small_runs import SIZES, outcome, simulation_of
from worlds import NUM_CLIENTS, made, network, perceptron, quadratic_world

NUM_PARAMETERS = 4 * 6 + 6 + 6 * 3 + 3
ROUNDS = 6
SILENT = [stream(3, "silence", round).random() < 0.5 for round in range(1, ROUNDS + 1)]  # 3 is small_runs' seed
SELECTED = 6  # of eight


def _run(**options: Any) -> Simulation:
    return simulation_of(FedPD(skip_probability=0.5), **{"engine": "serial", "model": made(perceptron), **options})


def test_in_silence_a_client_goes_on_from_its_own_centre() -> None:
    # rho = 2, f(w) = 1/2 (w - 3)^2, w = 0, y = -1, centre = 1, and theta = 50 does not reach the client.
    # w = (3 + 1 + 2)/3 = 2, y = -1 + 2 (2 - 1) = 1, centre = 2 + 1/2.
    # w = (3 - 1 + 2 (5/2))/3 = 7/3, y = 1 + 2 (7/3 - 5/2) = 2/3, centre = 7/3 + 1/3.
    v = torch.tensor([1.0]).double()
    play = Play(FedPD(rho=2.0), on_a_line([1.0], [3.0]), v, num_clients=1)
    play.given(server=fedpd.Server(50 * v), states={0: fedpd.Client(0 * v, -1 * v, v)}, round=0)
    for number, expected in ((1, (2.0, 1.0, 2.5)), (2, (7 / 3, 2 / 3, 8 / 3))):
        (visit,) = play.engine.run(
            play.checkpoint.server,
            buffers=play.checkpoint.buffers,
            assignments=[Assignment(0, number, 1, informed=False, sends=False)],
        )
        assert visit.silent
        play.store.commit(play.checkpoint._replace(round=number), clients=[0], record={})
        assert tuple(map(float, play.states[0])) == pytest.approx(expected)


def test_a_silent_round_costs_gradients_and_no_bytes() -> None:
    simulation = _run()
    assert 0 < sum(SILENT) < ROUNDS
    for silent in SILENT:
        before = simulation.theta
        record = simulation.advance()
        assert len(record.clients) == (0 if silent else SELECTED)
        assert sorted(record.clients + record.silent) == list(range(8))
        assert record.gradient_evaluations >= sum(SIZES)  # one or two epochs of everyone
        assert record.bytes_up == record.bytes_down == 4 * NUM_PARAMETERS * len(record.clients)
        assert identical(before, simulation.theta) == silent


def test_the_run_is_the_papers_algorithm() -> None:
    # Algorithm 1 in a loop of its own; with six of eight selected, the others go on as in silence.
    simulation = _run()
    rho, theta = simulation.algorithm.rho, simulation.theta
    w, y, x0 = {}, {}, {}
    for i in range(8):
        w[i], y[i], x0[i] = theta, torch.zeros_like(theta), theta
    for number, silent in enumerate(SILENT, start=1):
        assignments = simulation.assignments(number)
        assert [a.client for a in assignments] == list(range(8))
        assert sum(a.sends for a in assignments) == (0 if silent else SELECTED)
        for a in assignments:
            i, problem = a.client, simulation.task.problem(a, buffers=simulation.checkpoint.buffers)
            w[i] = problem.solve(start=w[i], dual=y[i], rho=rho, centre=x0[i]).w
            y[i] = y[i] + rho * (w[i] - x0[i])
            x0[i] = w[i] + y[i] / rho
        senders = [a.client for a in assignments if a.sends]
        if senders:
            weight = {i: SIZES[i] for i in senders}
            theta = sum(weight[i] * x0[i] for i in senders) / sum(weight.values())
            x0 |= dict.fromkeys(senders, theta)
        simulation.advance()
        torch.testing.assert_close(simulation.theta, theta, rtol=1e-4, atol=1e-5)
    for i in range(8):
        torch.testing.assert_close(simulation.personal_model(i), w[i], rtol=1e-4, atol=1e-5)


def test_the_coin_is_the_same_for_all_settings_and_falls_anew_for_another_seed() -> None:
    def coins(**options: Any) -> list[bool]:
        simulation = _run(**options)
        return [any(a.sends for a in simulation.assignments(round)) for round in range(1, 30)]

    assert coins() == coins(participation=0.25)
    assert coins() != coins(seed=4)


def test_theta_is_the_mean_of_the_centres_where_all_communicate() -> None:
    play = quadratic_world().play(FedPD(rho=0.7))
    for _ in range(4):
        play.round(range(NUM_CLIENTS))
        mean = sum(state.centre for state in play.states.values()) / NUM_CLIENTS
        torch.testing.assert_close(play.theta, mean, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_workers_are_serial_to_the_bit_and_stacks_to_rounding() -> None:
    serial = outcome(_run(), rounds=ROUNDS)
    assert identical(outcome(_run(engine="workers", workers=2), rounds=ROUNDS), serial)
    _near(outcome(_run(engine="stacked"), rounds=ROUNDS), serial)


def _near(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours[0][1].theta, theirs[0][1].theta, rtol=1e-4, atol=1e-5)
    for client, state in theirs[1].items():
        torch.testing.assert_close(tuple(ours[1][client]), tuple(state), rtol=1e-4, atol=1e-5)
    for one, other in zip(ours[2], theirs[2], strict=True):
        assert (one["clients"], one.get("silent")) == (other["clients"], other.get("silent"))
        assert (one["bytes_up"], one["bytes_down"]) == (other["bytes_up"], other["bytes_down"])


@pytest.mark.slow
def test_so_are_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_here(monkeypatch, num_cpus=2)
    _near(outcome(_run(engine="ray", workers=2), rounds=ROUNDS), outcome(_run(), rounds=ROUNDS))


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_a_message_is_lost_only_where_it_was_sent_and_its_client_goes_on_alone(engine: str) -> None:
    faults = Faults(lose_requests=0.2, lose_replies=0.3, duplicate=0.3, delay=0.2)
    checkpoint, states, records = outcome(_run(faults=faults, engine=engine), rounds=ROUNDS)
    assert [bool(record.get("lost")) for record in records] == [not silent for silent in SILENT]
    for record in records:
        assert set(record.get("lost", ())) <= set(record["silent"])
        assert sorted([*record["clients"], *record["silent"]]) == list(range(8))
        num_sent = len(record["clients"]) + len(record.get("lost", ()))
        assert record["bytes_down"] == 4 * NUM_PARAMETERS * num_sent  # lost or not
    lossless = _run(engine=engine, participation=lambda number, generator, devices: records[number - 1]["clients"])
    expected = outcome(lossless, rounds=ROUNDS)
    if engine == "serial":
        assert identical((checkpoint, states), expected[:2])
    else:  # with faults uploads are summed one by one
        _near((checkpoint, states, [{**r, "bytes_down": r["bytes_up"]} for r in records]), expected)


def test_a_run_that_stopped_in_silence_goes_on(tmp_path: Path) -> None:
    whole = outcome(_run(), rounds=ROUNDS)
    for rounds in (SILENT.index(True) + 1, ROUNDS - SILENT.index(True) - 1):
        part = _run(folder=tmp_path / "state")
        ended = outcome(part, rounds=rounds)
        part._store.close()
    assert identical(ended, whole)


@pytest.mark.slow
def test_a_run_folder_with_silent_rounds_is_sound(tmp_path: Path) -> None:
    experiment = Experiment(
        algorithm=FedPD(skip_probability=0.5),
        rounds=4,
        participation=0.5,
        data={"num_clients": 6},
        model={"name": "softmax_regression"},
        engine="serial",
    )
    ended = run(experiment, out=tmp_path)
    assert {len(record.clients) for record in ended.history} == {0, 3}
    found = [finding.kind for finding in findings(ended.folder.path)]
    assert "problem" not in found
    assert "end" in found


def test_a_model_with_buffers_is_refused() -> None:
    with pytest.raises(InputError, match=r"FedPD's clients go on alone .* use a model without buffers"):
        _run(model=made(network))
