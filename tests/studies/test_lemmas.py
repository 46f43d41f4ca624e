"""Lemmas 1 to 3 on every path and round of the algorithm as it is, and not of one with a mistake."""

from itertools import pairwise

import pytest
import torch
from broken import BROKEN

from fedadmm.algorithms import FedADMM
from fedadmm.studies.theory.analysis import checked
from fedadmm.studies.theory.quadratics import Quadratics, Tolerance, coins, random_quadratics
from fedadmm.studies.theory.walk import lemma_1, lemma_2, walk
from quadratics import on_a_line

# epsilon of (client, round): none, one for each client, shrinking, and up and down.
TOLERANCES: dict[str, Tolerance] = {
    "exact": lambda i, t: 0.0,
    "a level for each client": lambda i, t: 10.0 ** -(i % 4),
    "shrinking": lambda i, t: 1.0 / t**2,
    "up and down": lambda i, t: 1e-4 if (i + t) % 2 else 1.0,
}


def _check(seed: int, tolerance: str) -> None:
    path, (first, second, third), holding = checked(seed, tolerance=TOLERANCES[tolerance])
    assert all(bool(lemma.holds.all()) for lemma in holding)
    returning = path.seen[:-1] | ~path.active  # [T, client]: not at its first visit
    assert first.holds[returning].all()
    assert second.holds[returning.all(dim=1)].all()
    assert third.holds[path.seen.all(dim=1)].all()


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_the_lemmas_hold_from_the_start_and_as_printed_from_the_second_visit_on(tolerance: str) -> None:
    for seed in range(10):
        _check(seed, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_the_lemmas_hold_on_a_hundred_problems(tolerance: str) -> None:
    for seed in range(200, 225):
        _check(seed, tolerance)


@pytest.mark.parametrize("algorithm", BROKEN)
def test_a_mistake_violates_a_lemma(algorithm: type[FedADMM]) -> None:
    walks = (checked(seed, tolerance=TOLERANCES["exact"], kind=algorithm).holding for seed in range(10))
    assert any(not lemma.holds.all() for lemmas in walks for lemma in lemmas)


def test_a_constant_eta_violates_lemma_2() -> None:
    task, rho = random_quadratics(0)
    draws = coins(len(task.targets), rounds=30, probability=0.4, seed=0)
    path = walk(FedADMM(rho=rho, eta=1.0), task, theta=task.random_start(0), draws=draws)
    assert not lemma_2(path, printed=False).holds.all()


def test_lemma_1_fails_at_a_first_visit() -> None:
    # f(w) = 1/2 (w - 5)^2 from theta^0 = 0 with rho = 4 > (1 + sqrt 5): the first solve ends at w = 5 / (1 + 4) = 1,
    # so the dual moves by 4 (1 - 0) = 4, and Lemma 1 allows sqrt(2) |w - 0| = 1.41.
    task = on_a_line([1.0], [5.0])
    theta = torch.zeros(1, dtype=torch.float64)
    path = walk(FedADMM(rho=4.0), task, theta=theta, draws=[[0]] * 5)
    printed = lemma_1(path, printed=True)
    assert printed.left[0].item() == pytest.approx(16)
    assert printed.right[0].item() == pytest.approx(2)
    assert printed.holds.flatten().tolist() == [False, True, True, True, True]
    # With the error of a dual of zero, |grad f(0)|^2 = 25, it allows 4 x 25 + 2.
    holding = lemma_1(path, printed=False)
    assert holding.right[0].item() == pytest.approx(102)
    assert holding.holds.all()


def test_lemma_2_fails_with_a_newcomer() -> None:
    # The same client: at t = 0 the Lagrangian is f(0) = 12.5. After the visit w = 1, y = 4 and theta = 1 + 4/4 = 2,
    # so it is 8 + 4 (1 - 2) + 2 (1 - 2)^2 = 6: a fall of 6.5, where the lemma promises 8.5.
    path = walk(FedADMM(rho=4.0), on_a_line([1.0], [5.0]), theta=torch.zeros(1, dtype=torch.float64), draws=[[0]])
    assert path.certificate.lagrangian.tolist() == pytest.approx([12.5, 6.0])
    printed = lemma_2(path, printed=True)
    # -(4 - 2)/2 + 2/4 = -0.5 for the step of w, and -4/2 x 2^2 = -8 for that of theta.
    assert printed.right.tolist() == pytest.approx([-8.5])
    assert printed.holds.tolist() == [False]
    assert lemma_2(path, printed=False).holds.all()


def test_an_inexact_solve_leaves_the_error_that_was_asked_for() -> None:
    task, rho = random_quadratics(3)
    inexact = Quadratics(task.hessians, task.targets, tolerance=lambda c, r: 0.01 / r, seed=0)
    everyone = range(len(task.targets))
    path = walk(
        FedADMM(rho=rho, eta="participation", newcomer="initial"),
        inexact,
        theta=task.random_start(3),
        draws=[everyone] * 3,
    )
    for round, (before, after) in enumerate(pairwise(range(4)), start=1):
        w, y, theta = path.w[after], path.y[before], path.theta[before]
        left = inexact.gradients(w) + y + rho * (w - theta)
        torch.testing.assert_close(left.square().sum(dim=1), torch.full((len(w),), 0.01 / round).double())
