"""A server that sits out around FedADMM with exact solves is the randomised ADMM, and reaches the optimum."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import torch

from fedadmm import FedADMM, RandomisedServer
from fedadmm.algorithms import Averaged
from fedadmm.config.algorithm_table import with_seed
from fedadmm.config.plans import load_plan
from fedadmm.core.participation import Devices, Independent
from fedadmm.core.seeds import stream
from fedadmm.runs.assembly import federation_of
from fedadmm.runs.runner import run
from play import Play, identical
from quadratics import heterogeneous

NUM_CLIENTS = 12
CLIENTS = heterogeneous(NUM_CLIENTS, 4, seed=3)
HESSIANS, TARGETS = CLIENTS.hessians.numpy(), CLIENTS.targets.numpy()
PROBABILITIES = tuple(np.linspace(0.1, 0.9, NUM_CLIENTS).tolist())
EXACT = FedADMM(rho=0.5, eta="participation", newcomer="initial")


def _active(round: int) -> list[int]:
    rule = Independent(PROBABILITIES)
    generator = stream(0, "participation", round)
    return rule.select(round, devices=Devices(NUM_CLIENTS), generator=generator).tolist()


def _play(algorithm: object) -> Play:
    return Play(algorithm, CLIENTS, torch.ones(4).double(), num_clients=NUM_CLIENTS)


def _scipys_optimum() -> np.ndarray:
    def mean_of_all(w: np.ndarray) -> tuple[float, np.ndarray]:
        gradients = np.einsum("ijk,ik->ij", HESSIANS, w - TARGETS)
        return 0.5 * float(((w - TARGETS) * gradients).sum() / NUM_CLIENTS), gradients.mean(axis=0)

    curvature = HESSIANS.mean(axis=0)
    found = scipy.optimize.minimize(
        mean_of_all, np.zeros(4), jac=True, hess=lambda _: curvature, method="trust-exact", options={"gtol": 1e-11}
    )
    return found.x


@pytest.mark.slow
@pytest.mark.parametrize("awake", [0.2, 0.7])
def test_randomised_admm_reaches_scipys_optimum(awake: float) -> None:
    play, optimum = _play(RandomisedServer(awake=awake, inner=EXACT)), _scipys_optimum()
    for number in range(1, 1500):
        play.round(_active(number))
        if np.linalg.norm(play.theta.numpy() - optimum) < 1e-9:
            break
    for later in range(number + 1, number + 30):
        play.round(_active(later))
    assert np.linalg.norm(play.theta.numpy() - optimum) < 1e-8


def test_rounds_are_those_of_the_randomised_admm() -> None:
    # Blocks x_0 (the server) and x_k, y_k (the clients), each updated only if it is active, all of them kept by name.
    algorithm = RandomisedServer(awake=0.4, seed=5, inner=EXACT)
    play, rho = _play(algorithm), 0.5
    x_0, x, y = np.ones(4), np.ones((NUM_CLIENTS, 4)), np.zeros((NUM_CLIENTS, 4))
    for number in range(1, 15):
        active = _active(number)
        for k in active:
            curvature = HESSIANS[k] + rho * np.eye(4)
            x[k] = np.linalg.solve(curvature, HESSIANS[k] @ TARGETS[k] - y[k] + rho * x_0)
            y[k] = y[k] + rho * (x[k] - x_0)
        if active and algorithm.is_awake(number):
            x_0 = (x + y / rho).mean(axis=0)
        play.round(active)
        np.testing.assert_allclose(play.theta.numpy(), x_0, atol=1e-12)


def test_a_server_that_never_sits_out_is_the_inner_one() -> None:
    outer, inner = (_play(algorithm) for algorithm in (RandomisedServer(awake=1.0, inner=EXACT), EXACT))
    for number in range(1, 8):
        outer.round(_active(number))
        inner.round(_active(number))
    assert identical(outer.theta, inner.theta)
    assert identical(outer.states, inner.states)


def test_its_share_of_rounds_is_as_asked() -> None:
    awake = [RandomisedServer(awake=0.3).is_awake(number) for number in range(1, 2001)]
    assert 0.27 < np.mean(awake) < 0.33
    assert awake != [RandomisedServer(awake=0.3, seed=1).is_awake(number) for number in range(1, 2001)]


@pytest.mark.slow
def test_the_preset_solves_exactly_by_steps_and_by_lbfgs(tmp_path: Path) -> None:
    changes = {"rounds": 4, "engine": "serial", "state.store": "memory"}
    exact = {"local.solver": "lbfgs", "local.tolerance": 1e-24, "local.epochs": 200}
    last = []
    for local in ({}, exact):
        experiment = load_plan("randomised_admm").experiment("clients_of_many_kinds", changes=changes | local)
        last.append(run(experiment, out=tmp_path).history[-1].metrics["distance"])
    assert last[0] == pytest.approx(last[1], rel=1e-9)
    assert last[0] < 0.5


def test_the_servers_coin_is_tossed_with_the_runs_seed_unless_it_has_its_own() -> None:
    def coin(algorithm: RandomisedServer, seed: int) -> list[bool]:
        return [with_seed(algorithm, seed).is_awake(round) for round in range(1, 40)]

    expected = {seed: [bool(stream(seed, "server", round).random() < 0.5) for round in range(1, 40)] for seed in (0, 7)}
    assert (coin(RandomisedServer(), 0), coin(RandomisedServer(), 7)) == (expected[0], expected[7])
    assert coin(RandomisedServer(seed=0), 7) == expected[0] != expected[7]
    assert with_seed(Averaged(inner=RandomisedServer()), 7).inner.seed == 7


@pytest.mark.parametrize("seed", [0, 7])
def test_a_run_hands_its_seed_on_and_is_named_after_it(seed: int) -> None:
    base = load_plan("randomised_admm").experiment().replace(seed=seed)
    federation = federation_of(base)
    assert federation.algorithm.seed == seed
    named = [base.replace(algorithm=replace(base.algorithm, seed=own)).hash == base.hash for own in (0, 7)]
    assert named == [seed == 0, seed == 7]
