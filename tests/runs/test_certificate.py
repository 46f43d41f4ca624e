"""What a run records of the analysis, against torch's own derivatives."""

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from certified_runs import CERTIFIABLE, NUM_CLIENTS, experiment
from fedadmm import Experiment, FedADMM, FedAvg, InputError
from fedadmm.runs.records import CERTIFICATE
from fedadmm.runs.runner import run
from fedadmm.runs.simulation import simulation_of
from fedadmm.studies.theory.smoothness import of_task


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


INITIAL = simulation_of(experiment(certificate=None)).theta.clone()


def test_a_record_holds_the_lagrangian_and_v_as_the_round_found_them() -> None:
    simulation = simulation_of(experiment())
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
    plain, certified = experiment(certificate=None), experiment()
    assert plain.hash == certified.hash
    simulations = [simulation_of(chosen) for chosen in (plain, certified)]
    for simulation in simulations:
        for _ in range(3):
            simulation.advance()
    assert torch.equal(*(simulation.theta for simulation in simulations))
    assert not set(CERTIFICATE) & set(simulations[0].history[0].metrics)
    assert Experiment.from_toml(certified.to_toml()) == certified


def test_rounds_between_have_none() -> None:
    simulation = simulation_of(experiment(certificate={"every": 2}))
    records = [simulation.advance() for _ in range(4)]
    assert [record.metrics["V"] is None for record in records] == [False, True, False, True]


@pytest.mark.slow
def test_a_sample_of_all_is_all_and_a_smaller_one_is_drawn_anew() -> None:
    def gaps(**settings: Any) -> list[float]:
        simulation = simulation_of(experiment(certificate=settings))
        return [simulation.advance().metrics["V_w"] for _ in range(4)]

    everyone = gaps(clients="all")
    assert gaps(clients=NUM_CLIENTS) == pytest.approx(everyone)
    assert gaps(clients=2) == gaps(clients=2) != everyone


@pytest.mark.slow
def test_weights_count_in_the_sums() -> None:
    # All clients have as many examples, so that weighting by them changes nothing.
    gaps = [
        [simulation.advance().metrics["V"] for _ in range(3)]
        for simulation in (simulation_of(experiment(weighting=w)) for w in ("equal", "examples"))
    ]
    assert gaps[0] == pytest.approx(gaps[1])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"algorithm": FedAvg()}, "FedAvg has no certificate: its clients do not keep w, y and rho; use fedadmm"),
        ({"certificate": {"clients": 6}}, "certificate.clients=6 of 5 clients cannot be drawn"),
        ({"certificate": {"clients": "some"}}, "clients='some' is out of range"),
        ({"certificate": {"every": 0}}, "every=0 is out of range"),
    ],
)
def test_what_cannot_be_certified_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        simulation_of(experiment(**changes))


def _warnings(caplog: pytest.LogCaptureFixture, *, rounds: int = 20, **changes: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="fedadmm"):
        simulation = simulation_of(experiment(**changes))
        for _ in range(rounds):
            simulation.advance()
    return caplog.messages


@pytest.mark.slow
def test_a_rise_of_the_lagrangian_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    assert _warnings(caplog) == []
    left = _warnings(caplog, algorithm=FedADMM(rho=4.0, eta=1.0, newcomer="initial"))
    assert left
    assert all("the run has left the region of Theorem 1" in line for line in left)
    assert len(left) < 20


@pytest.mark.slow
def test_a_rise_that_the_errors_explain_is_called_that(caplog: pytest.LogCaptureFixture) -> None:
    coarse = {"epochs": 1, "batch_size": 1, "learning_rate": 0.1}
    lines = _warnings(caplog, local=coarse, rounds=40)
    assert len(lines) == 1
    assert "for the first time; the errors of the local solves explain up to" in lines[0]


@pytest.mark.slow
def test_a_resumed_run_has_the_same_certificates(tmp_path: Path) -> None:
    run(experiment(rounds=3), out=tmp_path / "twice")
    again = run(experiment(), out=tmp_path / "twice")
    once = run(experiment(), out=tmp_path / "once")
    assert [record.metrics for record in again.history] == [record.metrics for record in once.history]


@pytest.mark.slow
def test_rounds_that_are_there_without_the_certificate_asked_for_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told(**changes: Any) -> list[str]:
        caplog.clear()
        run(experiment(**changes), out=tmp_path)
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


@pytest.mark.parametrize(
    ("model", "positive", "kind"),
    [("softmax_regression", None, "bound"), ("logistic_regression", (1, 3), "bound"), ("mlp", None, "estimate")],
)
def test_l_is_at_least_the_curvature_at_theta(model: str, positive: Any, kind: str) -> None:
    data = {"name": "digits", "num_clients": 20, "partition": "iid", "positive": positive, "float_type": "float64"}
    chosen = experiment(model={"name": model, "l2": 0.1}, data=data, certificate=None)
    simulation = simulation_of(chosen)
    theta, buffers = simulation.theta, simulation.checkpoint.buffers
    found = of_task(simulation.task, w=theta, buffers=buffers, estimate_on=2)
    assert found.kind == kind
    objective = simulation.task.objective(0, buffers=buffers)
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(len(theta), dtype=theta.dtype, generator=generator)
    direction /= direction.norm()
    product = objective.hessian_product(theta, direction)
    # The product against the slope of the gradient, and its length against L.
    step = 1e-5 * direction
    ahead, behind = (objective.value_and_gradient(w)[1] for w in (theta + step, theta - step))
    torch.testing.assert_close(product, (ahead - behind) / 2e-5, rtol=1e-4, atol=1e-6)
    assert float(product.norm()) <= found.value
