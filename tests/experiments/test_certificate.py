"""What a run records of the analysis, against torch's own derivatives; and `fedadmm certify`."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from commands import fedadmm
from fedadmm import Experiment, FedADMM, FedAvg, InputError
from fedadmm.algorithms import SittingOut
from fedadmm.experiments.build import simulation_of
from fedadmm.experiments.certificate import KEYS
from fedadmm.experiments.certify import certify_run
from fedadmm.experiments.runner import run
from fedadmm.theory.smoothness import of_task

NUM_CLIENTS = 5
CERTIFIABLE = FedADMM(rho=4.0, eta="participation", newcomer="initial")


def _experiment(**changes: Any) -> Experiment:
    table: dict[str, Any] = {
        "rounds": 6,
        "participation": 0.6,
        "engine": "serial",
        "algorithm": CERTIFIABLE,
        "model": {"name": "linear", "options": {"bias": False}, "loss": "least_squares"},
        "data": {
            "name": "quadratic",
            "num_clients": NUM_CLIENTS,
            "partition": "natural",
            "options": {"dimension": 3},
        },
        "local": {"epochs": 30, "batch_size": "full", "learning_rate": 0.2},
        "certificate": {},
    }
    return Experiment(**table | changes)


def _by_equations_3_and_7(simulation: Any) -> tuple[float, float]:
    """Return the Lagrangian and V^t of a simulation as it stands, by automatic differentiation."""
    task, theta = simulation.task, simulation.theta.clone().requires_grad_()
    states = [simulation._store.get(i) or CERTIFIABLE.init_client(INITIAL) for i in range(NUM_CLIENTS)]
    w = torch.stack([state.w for state in states]).requires_grad_()
    y = torch.stack([state.y for state in states]).requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for i in range(NUM_CLIENTS):
        inputs, targets = task.data.client(i)
        apart = w[i] - theta
        value = ((inputs @ w[i] - targets) ** 2).mean() / 2
        total = total + value + y[i] @ apart + 4.0 / 2 * apart @ apart
    slopes = torch.autograd.grad(total, (w, y, theta))
    return float(total.detach()), sum(float(slope.square().sum()) for slope in slopes)


INITIAL = simulation_of(_experiment(certificate=None)).theta.clone()


def test_a_record_holds_the_lagrangian_and_v_as_the_round_found_them() -> None:
    simulation = simulation_of(_experiment())
    for _ in range(4):
        expected, theta = _by_equations_3_and_7(simulation), simulation.theta
        numbers = simulation.advance().metrics
        assert (numbers["lagrangian"], numbers["V"]) == pytest.approx(expected)
        assert numbers["V"] == pytest.approx(sum(numbers[k] for k in ("V_theta", "V_w", "V_consensus")))
        assert numbers["primal_residual"] == pytest.approx(math.sqrt(numbers["V_consensus"]))
        moved = float((simulation.theta - theta).norm())
        assert numbers["dual_residual"] == pytest.approx(4.0 * math.sqrt(NUM_CLIENTS) * moved)
        assert numbers["V_theta"] < 1e-20  # theta is the mean of all u
    assert [r.metrics["share_seen"] for r in simulation.history][:2] == [0.0, 0.6]


def test_a_certificate_changes_neither_the_run_nor_its_name() -> None:
    plain, certified = _experiment(certificate=None), _experiment()
    assert plain.hash == certified.hash
    simulations = [simulation_of(experiment) for experiment in (plain, certified)]
    for simulation in simulations:
        for _ in range(3):
            simulation.advance()
    assert torch.equal(*(simulation.theta for simulation in simulations))
    assert not set(KEYS) & set(simulations[0].history[0].metrics)
    assert Experiment.from_toml(certified.to_toml()) == certified


def test_rounds_between_have_none() -> None:
    simulation = simulation_of(_experiment(certificate={"every": 2}))
    records = [simulation.advance() for _ in range(4)]
    assert [record.metrics["V"] is None for record in records] == [False, True, False, True]


def test_a_sample_of_all_is_all_and_a_smaller_one_is_drawn_anew() -> None:
    def gaps(**settings: Any) -> list[float]:
        simulation = simulation_of(_experiment(certificate=settings))
        return [simulation.advance().metrics["V_w"] for _ in range(4)]

    everyone = gaps(clients="all")
    assert gaps(clients=NUM_CLIENTS) == pytest.approx(everyone)
    assert gaps(clients=2) == gaps(clients=2) != everyone


def test_weights_count_in_the_sums() -> None:
    # All clients have as many examples, so that weighting by them changes nothing.
    gaps = [
        [simulation.advance().metrics["V"] for _ in range(3)]
        for simulation in (simulation_of(_experiment(weighting=w)) for w in ("equal", "examples"))
    ]
    assert gaps[0] == pytest.approx(gaps[1])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"algorithm": FedAvg()},
            "FedAvg has no certificate: its clients do not keep w, y and rho; use fedadmm",
        ),
        ({"certificate": {"clients": 6}}, "certificate.clients=6 of 5 clients cannot be drawn"),
        ({"certificate": {"clients": "some"}}, "clients='some' is out of range"),
        ({"certificate": {"every": 0}}, "every=0 is out of range"),
    ],
)
def test_what_cannot_be_certified_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        simulation_of(_experiment(**changes))


def _warnings(caplog: pytest.LogCaptureFixture, *, rounds: int = 20, **changes: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="fedadmm"):
        simulation = simulation_of(_experiment(**changes))
        for _ in range(rounds):
            simulation.advance()
    return caplog.messages


def test_a_rise_of_the_lagrangian_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    assert _warnings(caplog) == []
    left = _warnings(caplog, algorithm=FedADMM(rho=4.0, eta=1.0, newcomer="initial"))
    assert left
    assert all("the run has left the region of Theorem 1" in line for line in left)
    assert len(left) < 20


def test_a_rise_that_the_errors_explain_is_called_that(caplog: pytest.LogCaptureFixture) -> None:
    coarse = {"epochs": 1, "batch_size": 1, "learning_rate": 0.1}
    lines = _warnings(caplog, local=coarse, rounds=40)
    assert len(lines) == 1
    assert "for the first time; the errors of the local solves explain up to" in lines[0]


def test_a_resumed_run_has_the_same_certificates(tmp_path: Path) -> None:
    run(_experiment(rounds=3), out=tmp_path / "twice")
    again = run(_experiment(), out=tmp_path / "twice")
    once = run(_experiment(), out=tmp_path / "once")
    assert [record.metrics for record in again.history] == [record.metrics for record in once.history]


def test_rounds_that_are_there_without_the_certificate_asked_for_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told(**changes: Any) -> list[str]:
        caplog.clear()
        run(_experiment(**changes), out=tmp_path)
        return [line for line in caplog.messages if "give another --out" in line]

    assert told(rounds=2, certificate=None) == []
    assert told(rounds=2)[0].startswith("2 of the 2 rounds that are there already have no certificate")
    assert told(rounds=4)[0].startswith("2 of the 2 rounds")
    assert told(rounds=4, certificate=None) == []
    other = {"seed": 1}
    assert told(rounds=2, **other) == told(rounds=4, **other) == []
    (line,) = told(rounds=5, certificate={"clients": 2}, **other)
    assert line.startswith("the rounds that are there already have certificates of other settings (every=1")
    assert told(rounds=6, certificate={"every": 3, "clients": 2}, **other)
    assert told(rounds=6, certificate={"every": 2, "clients": 2}, **other)


def test_a_run_that_went_on_without_certificates_is_certified_as_far_as_they_go(tmp_path: Path) -> None:
    run(_experiment(rounds=4), out=tmp_path)
    facts, _ = certify_run(run(_experiment(certificate=None), out=tmp_path).folder.path)
    assert facts["certified"].startswith("4 rounds, with settings that experiment.toml no longer has;")


def test_certify_finds_the_mean_below_the_bound(tmp_path: Path) -> None:
    folder = run(_experiment(rounds=20), out=tmp_path).folder.path
    facts, sentence = certify_run(folder)
    assert facts["L"] == "1 (exact: least squares, from the data)"
    assert facts["rho"] == "rho=4 is above (1 + sqrt 5) L = 3.236"
    assert facts["p_min"] == "0.6, the participation"
    # rho = 4, L = 1: c_1 = 0.6 (1 - 1/2), c_2 = 3 x 17 + 2 (1 + 2/16), c_3 = 3 + 1 + c_2 / c_1 x 20 / 8.
    assert facts["c_1, c_2, c_3"] == "0.3, 53.25, 447.8"
    assert "bound with the gradients at the start" in facts["from round 1"]
    assert sentence.startswith("The mean of V / m is 0.0")


def test_certify_says_what_the_theorem_asks_for(tmp_path: Path) -> None:
    folder = run(_experiment(algorithm=FedADMM(rho=0.5)), out=tmp_path).folder.path
    _, sentence = certify_run(folder)
    assert sentence.startswith(
        "Theorem 1 says nothing of this run: rho=0.5 is not above (1 + sqrt 5) L = 3.236; eta=1.0 is not |S|/m"
    )
    plain = run(_experiment(certificate=None, seed=1), out=tmp_path).folder.path
    with pytest.raises(InputError, match=r"has no certificate of its first round; run it anew with --set"):
        certify_run(plain)


@pytest.mark.parametrize(
    ("changes", "name", "text"),
    [
        (
            {"clock": {"speed": 100.0, "asynchronous": {"buffer": 2}}},
            "asynchronous",
            "the run is asynchronous: its clients work on older thetas, and Theorem 1 says nothing of that",
        ),
        ({"faults": {"lose_replies": 0.2}}, "p_min", "so p_min is unknown"),
        ({"clock": {"speed": 100.0, "deadline": 1000.0, "late": "drop"}}, "p_min", "so p_min is unknown"),
    ],
)
def test_certify_claims_no_bound_where_others_than_those_drawn_are_applied(
    tmp_path: Path, changes: dict[str, Any], name: str, text: str
) -> None:
    facts, sentence = certify_run(run(_experiment(rounds=20, **changes), out=tmp_path).folder.path)
    assert facts[name].endswith(text)
    assert sentence == f"Theorem 1 says nothing of this run: {facts[name]}."
    assert "c_1, c_2, c_3" not in facts


def test_certify_names_a_method_that_the_theorem_is_not_about(tmp_path: Path) -> None:
    sitting_out = run(_experiment(algorithm=SittingOut(inner=CERTIFIABLE)), out=tmp_path).folder.path
    facts, sentence = certify_run(sitting_out)
    assert "rho" not in facts
    assert sentence.startswith(
        "Theorem 1 says nothing of this run: the theorem is about FedADMM alone, and this is SittingOut"
    )
    averaged = run(_experiment(algorithm=FedAvg(), certificate=None), out=tmp_path).folder.path
    with pytest.raises(InputError, match="is a run of FedAvg, and certificates are for FedADMM and its kin"):
        certify_run(averaged)


def test_one_certified_round_is_told_once(tmp_path: Path) -> None:
    facts, _ = certify_run(run(_experiment(rounds=1), out=tmp_path).folder.path)
    assert facts["V / m"].count("as round 1 began") == 1
    assert facts["certified"] == "1 round; in 0 everyone had been seen before"


@pytest.mark.slow
def test_the_command_prints_the_verdict(tmp_path: Path) -> None:
    folder = run(_experiment(rounds=12), out=tmp_path).folder.path
    ended = fedadmm("certify", folder, cwd=tmp_path)
    assert ended.returncode == 0
    assert "of the bound of Theorem 1" in ended.stdout
    assert json.loads((folder / "rounds.jsonl").read_text().splitlines()[0])["V_theta"] == 0.0


@pytest.mark.parametrize(
    ("model", "positive", "kind"),
    [
        ("softmax_regression", None, "bound"),
        ("logistic_regression", (1, 3), "bound"),
        ("mlp", None, "estimate"),
    ],
)
def test_l_is_at_least_the_curvature_at_theta(model: str, positive: Any, kind: str) -> None:
    data = {
        "name": "digits",
        "num_clients": 20,
        "partition": "iid",
        "positive": positive,
        "float_type": "float64",
    }
    experiment = _experiment(model={"name": model, "l2": 0.1}, data=data, certificate=None)
    simulation = simulation_of(experiment)
    theta, buffers = simulation.theta, simulation.progress.buffers
    found = of_task(simulation.task, w=theta, buffers=buffers, estimate_on=2)
    assert found.kind == kind
    landscape = simulation.task.landscape(0, buffers=buffers)
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(len(theta), dtype=theta.dtype, generator=generator)
    direction /= direction.norm()
    product = landscape.hessian_product(theta, direction)
    # The product against the slope of the gradient, and its length against L.
    step = 1e-5 * direction
    ahead, behind = (landscape.value_and_gradient(w)[1] for w in (theta + step, theta - step))
    torch.testing.assert_close(product, (ahead - behind) / 2e-5, rtol=1e-4, atol=1e-6)
    assert float(product.norm()) <= found.value
