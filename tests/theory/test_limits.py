"""Where V^t goes: to zero, or to the floor that the accuracy of the local solves sets."""

import numpy as np
import pytest
import torch

from fedadmm.algorithms import FedADMM
from fedadmm.core.seeds import stream
from fedadmm.learning.quadratics import Quadratics, heterogeneous
from fedadmm.theory import constants
from fedadmm.theory.bounds import descent
from fedadmm.theory.inexact import Accuracy, InexactQuadratics
from fedadmm.theory.instances import coins, lowest_value
from fedadmm.theory.walk import walk

NUM_CLIENTS, RHO = 4, 3.3
CURVED = heterogeneous(NUM_CLIENTS, 2, seed=0)
# Curvatures from 0.55 to 1 (L), so that few rounds will do.
TASK = Quadratics((CURVED.hessians + torch.eye(2)) / 2, CURVED.targets)
THETA = torch.zeros(2, dtype=torch.float64)
ALGORITHM = FedADMM(rho=RHO, eta="participation", newcomer="initial")


def _gaps(task: Quadratics, draws: list[list[int]]) -> torch.Tensor:
    return walk(ALGORITHM, task, theta=THETA, draws=draws).certificate.gap.total


def _solved_to(accuracy: Accuracy) -> InexactQuadratics:
    return InexactQuadratics(TASK.hessians, TASK.targets, accuracy=accuracy, seed=1)


def _half(rounds: int) -> list[list[int]]:
    return coins(NUM_CLIENTS, rounds=rounds, probability=0.5, seed=0)


def test_exact_solves_lead_to_zero() -> None:
    gaps = _gaps(TASK, _half(250))
    assert gaps[0] > 1
    assert gaps[-1] < 1e-12


def test_the_accuracy_of_the_solves_sets_a_floor() -> None:
    floors = {}
    for epsilon in (1e-2, 1e-4):
        tail = _gaps(_solved_to(lambda c, r, epsilon=epsilon: epsilon), _half(250))[-100:]
        floors[epsilon] = float(tail.mean())
        _, _, c_3 = constants(rho=RHO, smoothness=1.0, p_min=0.5)
        # The theorem's floor is m c_3 epsilon, some hundreds of epsilons; nothing pushes V under a tenth of one.
        assert 0.1 * epsilon < floors[epsilon] <= NUM_CLIENTS * c_3 * epsilon
    # On quadratics the state is linear in the errors, and V is quadratic in them.
    assert floors[1e-2] / floors[1e-4] == pytest.approx(100, rel=0.01)


def test_accuracies_that_shrink_like_1_over_t_squared_lead_to_zero() -> None:
    gaps = _gaps(_solved_to(lambda c, r: 1 / r**2), _half(400))
    assert gaps[-1] < 1e-4
    # V falls as epsilon does: to a quarter where t doubles.
    assert float(gaps[350:].mean() / gaps[175:200].mean()) == pytest.approx(0.25, rel=0.3)


def _thinning(rounds: int, *, power: float, turns: bool = False) -> list[list[int]]:
    """Return draws with p_i^t = t^-power; with `turns`, client i only has a chance where t = i modulo m."""
    generator = stream(0, "thinning")
    draws = []
    for t in range(1, rounds + 1):
        fall = generator.random(NUM_CLIENTS) < t**-power
        draws.append([int(i) for i in np.flatnonzero(fall) if not turns or t % NUM_CLIENTS == i])
    return draws


def test_remark_2_probabilities_with_a_diverging_sum_lead_to_zero() -> None:
    gaps = _gaps(TASK, _thinning(3000, power=0.5))
    assert gaps[-1] < 1e-6


def test_remark_2_also_where_clients_never_have_a_chance_together() -> None:
    gaps = _gaps(TASK, _thinning(8000, power=0.5, turns=True))
    assert gaps[-1] < 1e-3
    assert gaps[-1] < 1e-2 * gaps[1000]


def test_remark_2_probabilities_with_a_finite_sum_do_not() -> None:
    assert _gaps(TASK, _thinning(4000, power=2.0))[-1] > 0.1


def test_remark_2_the_weighted_mean_is_below_its_bound() -> None:
    # Multiply the theorem's step by p^t rather than divide by p_min: the mean of V^t / m, weighted with p^t, is at most
    # c_2 / descent times (L^t0 - f*) over m times the sum of the p^t, from the t0 at which everyone has been seen.
    draws = _thinning(400, power=0.5)
    path = walk(ALGORITHM, TASK, theta=THETA, draws=draws)
    begin = path.everyone
    weights = torch.arange(begin + 1, len(draws) + 1).double() ** -0.5
    gaps = path.certificate.gap.total[begin:-1]
    _, c_2, _ = constants(rho=RHO, smoothness=1.0, p_min=1.0)
    room = float(path.certificate.lagrangian[begin]) - lowest_value(TASK)
    bound = c_2 / descent(rho=RHO, smoothness=1.0) * room / (NUM_CLIENTS * float(weights.sum()))
    assert float((weights * gaps).sum() / weights.sum()) / NUM_CLIENTS <= bound
