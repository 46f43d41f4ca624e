"""Theorem 1 as the mean over draws of the participation: where it holds, where it does not, and its repair."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fedadmm.algorithms import FedADMM
from fedadmm.algorithms.fedadmm import Client, Upload
from fedadmm.core.algorithm import LocalProblem
from fedadmm.core.errors import InputError
from fedadmm.runs.certificate import Certificate
from fedadmm.studies.theory.analysis import means_over_draws
from fedadmm.studies.theory.bounds import Assumptions, theorem_1, theorem_1_from_start
from fedadmm.studies.theory.quadratics import Quadratics, coins, random_quadratics
from fedadmm.studies.theory.walk import Path, lemmas, walk
from quadratics import on_a_line

ROUNDS = 20


def _check(seed: int, epsilon: float) -> None:
    means = means_over_draws(seed, epsilon=epsilon)
    assert 0 < means.later <= means.bound_later
    assert 0 < means.start <= means.bound_start


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "epsilon"), [(0, 0.0), (1, 0.01)])
def test_the_mean_gap_is_below_the_bound(seed: int, epsilon: float) -> None:
    _check(seed, epsilon)


@pytest.mark.slow
def test_the_mean_gap_is_below_the_bound_on_many_problems() -> None:
    for seed in range(200, 210):
        _check(seed, 0.0 if seed % 2 else 0.01)


def test_the_constants_by_hand() -> None:
    # rho = 4, L = 1, p_min = 1/2: c_1 = (1 - 1/2)/2, c_2 = 3 x 17 + 2 (1 + 2/16), c_3 = 3 + 1 + 213 x 20/8.
    known = Assumptions(rho=4.0, smoothness=1.0, p_min=0.5, num_clients=2, lowest=1.0)
    assert known.constants == pytest.approx((0.25, 53.25, 4 + 213 * 2.5))
    assert theorem_1(known, rounds=10, lagrangian=3.0) == pytest.approx(213 * 2 / 20)
    # And 6 of squared gradients at the start: 213 (4/4 + 1/2) + 8 / (16 x 1/2) = 320.5 times 6.
    from_start = theorem_1_from_start(known, rounds=10, lagrangian=3.0, gradients=6.0)
    assert from_start == pytest.approx(213 * 2 / 20 + 320.5 * 6 / 20)


def test_a_rho_that_is_too_small_is_refused() -> None:
    with pytest.raises(InputError, match=r"rho=3.2 is too small for Theorem 1 with L=1; use more than .* = 3.23607"):
        theorem_1(Assumptions(rho=3.2, smoothness=1.0, p_min=0.5), rounds=1, lagrangian=1.0)


# Two clients that pull in opposite ways: f_1 = (w - 1)^2 / 2 and f_2 = (w + 1)^2 / 2, with their minimiser at 0.
OPPOSITE = Assumptions(rho=4.0, smoothness=1.0, p_min=1.0, num_clients=2, lowest=1.0)


def _opposite() -> Quadratics:
    return on_a_line([1.0, 1.0], [1.0, -1.0])


def test_theorem_1_fails_from_t_0() -> None:
    # L^0 = f_1(0) + f_2(0) = 1 = f*, so the theorem's bound is 0; and V^0 = |-1|^2 + |1|^2 = 2.
    path = walk(
        FedADMM(rho=4.0, eta="participation", newcomer="initial"),
        _opposite(),
        theta=torch.zeros(1, dtype=torch.float64),
        draws=[[0, 1]] * 50,
    )
    gaps, values = path.certificate.gap, path.certificate.lagrangian
    assert gaps[0].item() == pytest.approx(2)
    for rounds in (1, 10, 50):
        mean = float(gaps[:rounds].mean()) / 2
        assert mean > theorem_1(OPPOSITE, rounds=rounds, lagrangian=float(values[0])) == 0
        assert mean <= theorem_1_from_start(OPPOSITE, rounds=rounds, lagrangian=1.0, gradients=2.0)
        # As it holds: from the round at which both have been seen, with the Lagrangian of that round.
        later = float(gaps[1 : 1 + rounds].mean()) / 2
        assert later <= theorem_1(OPPOSITE, rounds=rounds, lagrangian=float(values[1]))


@dataclass(frozen=True)
class FromGradients(FedADMM):
    """FedADMM after a first round in which everyone sets y_i to -grad f_i(theta^0) and stays where it is."""

    def client_update(self, server: Any, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        if problem.round > 1:
            return super().client_update(server, client, problem)
        new = client._replace(y=-problem.gradient(client.w))
        return Upload(new.u - client.u), new


@pytest.mark.parametrize("seed", range(4))
def test_duals_that_start_at_minus_the_gradient_make_the_printed_theory_true(seed: int) -> None:
    task, rho = random_quadratics(seed)
    num_clients, theta = len(task.targets), task.random_start(seed)
    draws = [range(num_clients), *coins(num_clients, rounds=ROUNDS, probability=0.5, seed=seed)]
    whole = walk(FromGradients(rho=rho, eta="participation", newcomer="initial"), task, theta=theta, draws=draws)
    first = whole.certificate.lagrangian[:2]
    # That round is a gradient step of 1 / rho on the mean; it lowers the Lagrangian by |sum of grad f_i|^2 / (2 m rho).
    gradient = num_clients * task.gradient(theta)
    torch.testing.assert_close(whole.theta[1], theta - gradient / (num_clients * rho))
    assert float(first[0] - first[1]) == pytest.approx(float(gradient.square().sum()) / (2 * num_clients * rho))
    for lemma in lemmas(_after_the_first_round(whole), printed=True):
        assert lemma.holds.all()


def _after_the_first_round(path: Path) -> Path:
    """Return a path from t = 1 on."""
    certificate = Certificate(*(term[1:] for term in path.certificate))
    return Path(path.task, path.rho, *(values[1:] for values in path[2:-1]), certificate)
