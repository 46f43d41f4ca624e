"""What rounds of noised sums cost, held against known figures and an accountant written from the definition."""

import math
import sys

import numpy as np
import pytest
import torch
from scipy.stats import norm

from fedadmm.core.errors import InputError
from fedadmm.core.participation import Poisson
from fedadmm.uploads.accountant import Accountant, noise_for, split_noise
from fedadmm.uploads.privacy import private_sums
from fedadmm.uploads.settings import Privacy


def _delta(epsilon: float, *, noise: float, share: float, rounds: int) -> float:
    """Return delta from its definition, by convolving the privacy loss of a round with itself on a grid of our own.

    x is drawn from the mixture (1 - q) N(0, s^2) + q N(1, s^2) or from N(0, s^2), and the loss is the logarithm of
    their ratio at x; delta is the mean of max(0, 1 - exp(epsilon - loss)). Both directions count: a client more, or
    less.
    """
    size, step = 2**18, 2.5e-4  # losses from -32 to 32
    x = np.linspace(-12 * noise, 1 + 12 * noise, 400_001)
    middle = (x[1:] + x[:-1]) / 2
    without, with_client = np.diff(norm.cdf(x, scale=noise)), np.diff(norm.cdf(x, loc=1, scale=noise))
    mixture = (1 - share) * without + share * with_client
    ratio = np.log1p(share * np.expm1((2 * middle - 1) / (2 * noise**2)))
    found = []
    for probability, loss in ((mixture, ratio), (without, -ratio)):
        grid = np.round(loss / step).astype(int) % size
        spectrum = np.fft.rfft(np.bincount(grid, weights=probability, minlength=size))
        composed = np.fft.irfft(spectrum**rounds, size)
        losses = step * ((np.arange(size) + size // 2) % size - size // 2)
        found.append(float((composed * -np.expm1(np.minimum(0.0, epsilon - losses))).sum()))
    return max(found)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "epsilon"), [(1.0, 4.09), (1.5, 2.0), (0.7, 8.7)])
def test_75_rounds_with_a_tenth_of_the_clients_cost_what_is_known_of_them(noise: float, epsilon: float) -> None:
    found = Accountant(noise, share=0.1, delta=1e-3).epsilon(75)
    assert found == pytest.approx(epsilon, rel=0.01)
    # A second accountant, which shares no code with the first: 1 % of epsilon on either side has delta between.
    assert _delta(0.99 * found, noise=noise, share=0.1, rounds=75) > 1e-3
    assert _delta(1.01 * found, noise=noise, share=0.1, rounds=75) < 1e-3


@pytest.mark.slow
def test_the_noise_of_one_gaussian_is_that_of_its_closed_form() -> None:
    # Balle and Wang (2018): delta = Phi(1/(2s) - e s) - exp(e) Phi(-1/(2s) - e s), with everyone in the round.
    noise = noise_for(1.0, rounds=1, share=1.0, delta=1e-5)
    for s, above in ((noise, False), (0.999 * noise, True)):
        delta = norm.cdf(0.5 / s - s) - math.e * norm.cdf(-0.5 / s - s)
        assert (delta > 1e-5) == above
    assert noise == pytest.approx(3.73, rel=1e-3)


@pytest.mark.slow
def test_noise_and_epsilon_and_rounds_are_each_the_answer_to_the_other_two() -> None:
    noise = noise_for(4, rounds=75, share=0.1, delta=1e-3)
    accountant = Accountant(noise, share=0.1, delta=1e-3)
    assert 0.995 * 4 < accountant.epsilon(75) <= 4
    assert accountant.rounds_within(4, most=10**6) == 75
    assert accountant.rounds_within(4, most=10) == 10


@pytest.mark.slow
def test_a_fixed_cohort_costs_more_than_a_poisson_one_and_less_than_no_sampling() -> None:
    # Replacing a client moves the sum by 2 clip, so noise 2 there is noise 1 of a sum that a client more moves by clip.
    fixed = Accountant(2.0, share=0.1, delta=1e-3, sampling="fixed").epsilon(75)
    assert Accountant(1.0, share=0.1, delta=1e-3).epsilon(75) < fixed < Accountant(1.0, 1.0, delta=1e-3).epsilon(75)
    # With everyone in every round there is no sampling: T Gaussians are one whose noise is smaller by sqrt(T).
    everyone = Accountant(20.0, share=1.0, delta=1e-3, sampling="fixed").renyi_epsilon(16)
    assert everyone == pytest.approx(Accountant(10.0, share=1.0, delta=1e-3).renyi_epsilon(16), rel=1e-6)


def test_many_rounds_of_much_noise_cost_what_one_gaussian_does() -> None:
    # 900 Gaussians of noise 90 are one of noise 3: its delta is that of the closed form.
    found, s = Accountant(90.0, share=1.0, delta=1e-5).epsilon(900), 3.0
    for epsilon, above in ((0.99 * found, True), (1.01 * found, False)):
        delta = norm.cdf(0.5 / s - epsilon * s) - math.exp(epsilon) * norm.cdf(-0.5 / s - epsilon * s)
        assert (delta > 1e-5) == above


@pytest.mark.slow
def test_nothing_costs_nothing_and_no_noise_costs_everything() -> None:
    assert Accountant(1.0, 0.1, 1e-3).epsilon(0) == 0
    assert Accountant(0.0, 0.1, 1e-3).epsilon(1) == math.inf
    assert noise_for(1e5, rounds=1, share=0.1, delta=1e-3) == 0.0625  # halved from 1 on, and 0.05 is the least


def test_a_count_beside_the_sum_takes_its_share_of_the_noise() -> None:
    # A sum of sensitivity 1 with noise s' and a count of bits - 1/2, of sensitivity 1/2, with noise 2: together they
    # are one Gaussian of noise 1 if 1/s'^2 + 1/(2 x 2)^2 = 1, so s' = 1 / sqrt(15/16).
    assert split_noise(1.0, count_noise=2.0) == pytest.approx((15 / 16) ** -0.5)
    assert split_noise(0.0, count_noise=2.0) == 0
    with pytest.raises(InputError, match="uses up all"):
        split_noise(1.0, count_noise=0.5)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"share": 0.0}, "participation=0 "), ({"delta": 1.0}, "delta=1 "), ({"noise": -1.0}, "noise=-1 is out of range")],
)
def test_what_cannot_be_accounted_for_is_refused(given: dict[str, float], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Accountant(**{"noise": 1.0, "share": 0.1, "delta": 1e-3} | given)


@pytest.mark.parametrize("epsilon", [math.nan, -1.0, 0.0, math.inf])
def test_an_epsilon_that_is_none_is_no_budget(epsilon: float) -> None:
    with pytest.raises(InputError, match="is out of range; use a number above 0, such as 8"):
        Accountant(1.0, 0.1, 1e-3).rounds_within(epsilon, most=10)


def test_a_tiny_share_costs_something() -> None:
    assert Accountant(1.0, 1e-10, 1e-12, "fixed").epsilon(3) > 0


def test_without_the_extra_a_run_is_refused_before_its_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    settings = Privacy(clip=1.0, noise=1.0, delta=1e-3)
    with pytest.raises(InputError, match=r'pip install "fedadmm\[privacy\]"'):
        private_sums(settings, participation=Poisson(0.1), num_clients=10, like=(torch.zeros(1),), seed=0)
