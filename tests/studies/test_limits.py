"""Where V^t goes: to zero, or to the floor that the tolerance of the local solves sets."""

import pytest
import torch

from fedadmm.studies.theory.analysis import (
    FLOORS,
    LIMIT_CLIENTS,
    LIMIT_RHO,
    as_analysed,
    gaps_of,
    halves,
    limit_task,
    thinning,
)
from fedadmm.studies.theory.bounds import Assumptions, descent
from fedadmm.studies.theory.quadratics import EXACT
from fedadmm.studies.theory.walk import walk


def test_exact_solves_lead_to_zero() -> None:
    gaps = gaps_of(EXACT, halves(250))
    assert gaps[0] > 1
    assert gaps[-1] < 1e-12


@pytest.mark.slow
def test_the_accuracy_of_the_solves_sets_a_floor() -> None:
    floors = {}
    for epsilon in (1e-2, 1e-4):
        tail = gaps_of(lambda i, t, epsilon=epsilon: epsilon, halves(250))[-100:]
        floors[epsilon] = float(tail.mean())
        _, _, c_3 = Assumptions(LIMIT_RHO, limit_task().smoothness, p_min=0.5).constants
        # The theorem's floor is m c_3 epsilon, some hundreds of epsilons; nothing pushes V under a tenth of one.
        assert 0.1 * epsilon < floors[epsilon] <= LIMIT_CLIENTS * c_3 * epsilon
    # On quadratics the state is linear in the errors, and V is quadratic in them.
    assert floors[1e-2] / floors[1e-4] == pytest.approx(100, rel=0.01)


@pytest.mark.slow
def test_tolerances_that_shrink_like_1_over_t_squared_lead_to_zero() -> None:
    gaps = gaps_of(FLOORS["1/t^2"], halves(400))
    assert gaps[-1] < 1e-4
    # V falls as epsilon does: to a quarter where t doubles.
    assert float(gaps[350:].mean() / gaps[175:200].mean()) == pytest.approx(0.25, rel=0.3)


@pytest.mark.slow
def test_remark_2_probabilities_with_a_diverging_sum_lead_to_zero() -> None:
    gaps = gaps_of(EXACT, thinning(3000, power=0.5))
    assert gaps[-1] < 1e-6


@pytest.mark.slow
def test_remark_2_also_where_clients_never_have_a_chance_together() -> None:
    gaps = gaps_of(EXACT, thinning(8000, power=0.5, turns=True))
    assert gaps[-1] < 1e-3
    assert gaps[-1] < 1e-2 * gaps[1000]


def test_remark_2_probabilities_with_a_finite_sum_do_not() -> None:
    assert gaps_of(EXACT, thinning(4000, power=2.0))[-1] > 0.1


def test_remark_2_the_weighted_mean_is_below_its_bound() -> None:
    # Multiply the theorem's step by p^t rather than divide by p_min: the mean of V^t / m, weighted with p^t, is at most
    # c_2 / descent times (L^t0 - f*) over m times the sum of the p^t, from the t0 at which everyone has been seen.
    draws = thinning(400, power=0.5)
    path = walk(as_analysed(LIMIT_RHO), limit_task(), theta=torch.zeros(2).double(), draws=draws)
    begin = path.everyone
    weights = torch.arange(begin + 1, len(draws) + 1).double() ** -0.5
    gaps = path.certificate.gap[begin:-1]
    _, c_2, _ = Assumptions(LIMIT_RHO, limit_task().smoothness, p_min=1.0).constants
    room = float(path.certificate.lagrangian[begin]) - limit_task().lowest_value
    bound = (
        c_2 / descent(rho=LIMIT_RHO, smoothness=limit_task().smoothness) * room / (LIMIT_CLIENTS * float(weights.sum()))
    )
    assert float((weights * gaps).sum() / weights.sum()) / LIMIT_CLIENTS <= bound
