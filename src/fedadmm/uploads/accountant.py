"""How much privacy rounds of noised sums cost: epsilon from noise, noise from epsilon; it needs no torch.

A round releases the sum of the sampled clients' uploads, each of norm at most `clip`, plus Gaussian noise of standard
deviation noise x clip. The composition is that of Google's dp-accounting, which is an extra:

    poisson   every client takes part with the probability q. Neighbours: one client more or less (sensitivity: clip).
              Privacy loss distributions, discretised so that epsilon is never below the true one.
    fixed     a fixed number of clients, drawn without replacement. Neighbours: one client replaced by another
              (sensitivity: 2 clip). Renyi differential privacy (Wang, Balle and Kasiviswanathan, AISTATS 2019): the
              losses of this sampling have no known worst pair that composes, so no tighter accountant is safe.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from fedadmm.core.errors import InputError

Sampling = Literal["poisson", "fixed"]
INTERVAL = 1e-3  # of the discretised privacy loss at noise 1; it moves epsilon by some 1e-5
DIGITS = 4  # of the noise that is found: rounded up, so that it never costs more than was asked for
MOST_ROUNDS = 10**6
POPULATION = 10**15  # only the ratio matters of a fixed number of clients to all
LEAST, MOST = 0.05, 1e4  # noise that is accounted for: with less, one round costs some hundreds
ORDERS = (*range(2, 64), 80, 96, 128, 192, 256, 512, 1024)  # of Renyi divergences


@dataclass(frozen=True)
class Accountant:
    """What rounds with this noise cost.

    noise: the standard deviation of the noise on the sum, over clip. share: of the clients in a round.
    """

    noise: float
    share: float
    delta: float
    sampling: Sampling = "poisson"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"participation={self.share:g} is not a fraction; use a number above 0 and up to 1")
        if not 0 < self.delta < 1:
            raise InputError(f"delta={self.delta:g} is out of range; use a number below 1 / number of clients")
        if not 0 <= self.noise <= MOST:
            raise InputError(f"noise={self.noise:g} is out of range; use a number from 0 to {MOST:g}, such as 1.0")

    def epsilon(self, rounds: int) -> float:
        """Return the epsilon at delta that this many rounds cost, infinity with next to no noise."""
        if rounds == 0:
            return 0.0
        if rounds > MOST_ROUNDS:
            raise InputError(f"rounds={rounds} are more than privacy is accounted for; use {MOST_ROUNDS:,} at most")
        if self.noise < LEAST:
            return math.inf
        if self.sampling == "fixed":
            return self.renyi_epsilon(rounds)
        return _epsilon(self.noise, self.share, self.delta, rounds)

    def renyi_epsilon(self, rounds: int) -> float:
        """Return the same by Renyi differential privacy: an upper bound for either sampling."""
        import_dp_accounting()
        from dp_accounting.rdp import compute_epsilon

        return float(compute_epsilon(ORDERS, rounds * _divergences_of_round(self), self.delta)[0])

    def rounds_within(self, epsilon: float, *, most: int) -> int:
        """Return how many rounds cost no more than epsilon, up to `most`."""
        _check_epsilon(epsilon)
        low, high = 0, 1
        while high <= most and self.epsilon(high) <= epsilon:
            low, high = high, 2 * high
        high = min(high, most + 1)
        while high - low > 1:  # low rounds fit, and high ones do not
            middle = (low + high) // 2
            low, high = (middle, high) if self.epsilon(middle) <= epsilon else (low, middle)
        return low

    def _event(self) -> tuple[Any, Any]:
        """Return a round as dp-accounting describes it, and its kind of neighbours."""
        import dp_accounting

        if self.sampling == "poisson":
            gaussian = dp_accounting.GaussianDpEvent(self.noise)
            return dp_accounting.PoissonSampledDpEvent(self.share, gaussian), _relations().ADD_OR_REMOVE_ONE
        halved = dp_accounting.GaussianDpEvent(self.noise / 2)  # the sensitivity is 2 clip
        event = dp_accounting.SampledWithoutReplacementDpEvent(POPULATION, math.ceil(self.share * POPULATION), halved)
        return event, _relations().REPLACE_ONE


def noise_for(epsilon: float, *, rounds: int, share: float, delta: float, sampling: Sampling = "poisson") -> float:
    """Return the least noise, to some digits, with which this many rounds cost no more than epsilon."""
    _check_epsilon(epsilon)
    costs: dict[float, float] = {}  # of the noises that were looked at; more noise costs less

    def fits(noise: float) -> bool:
        if any(noise >= other and cost <= epsilon for other, cost in costs.items()):
            return True
        if any(noise <= other and cost > epsilon for other, cost in costs.items()):
            return False
        costs[noise] = Accountant(noise, share, delta, sampling).epsilon(rounds)
        return costs[noise] <= epsilon

    low = high = 1.0
    while not fits(high):
        low, high = high, 2 * high
        if high > MOST:
            raise InputError(f"epsilon={epsilon:g} over {rounds} rounds needs a noise above {MOST:g}; use a larger one")
    while low == high or fits(low):
        low, high = low / 2, low
        if low < LEAST:
            return high
    for within in (1e-2, 3e-4):  # the logarithms lie nearly on a line: look close to where that crosses, on both sides
        near = _crossing(costs, epsilon)
        if low < near < high:
            fits(near * (1 - within))
            fits(near * (1 + within))
    while high - low > high * 10.0 ** (1 - DIGITS) / 2:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    step = 10.0 ** (math.floor(math.log10(high)) + 1 - DIGITS)
    return float(f"{math.ceil(high / step) * step:.{DIGITS}g}")


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon={epsilon:g} is out of range; use a number above 0, such as 8")


def _crossing(costs: dict[float, float], epsilon: float) -> float:
    """Return about the noise that costs epsilon, from the nearest costs above and below; 0 if one is not known."""
    above = min(((cost, noise) for noise, cost in costs.items() if epsilon < cost < math.inf), default=None)
    below = max(((cost, noise) for noise, cost in costs.items() if 0 < cost <= epsilon), default=None)
    if above is None or below is None:
        return 0.0
    share = math.log(epsilon / below[0]) / math.log(above[0] / below[0])
    return below[1] * (above[1] / below[1]) ** share


def split_noise(noise: float, *, count_noise: float) -> float:
    """Return the noise of the sum where a count of clients is released beside it (Andrew et al., NeurIPS 2021).

    count_noise: the standard deviation of the noise on the count. Both together cost what `noise` costs alone.
    """
    if not noise:
        return 0.0
    if 2 * count_noise <= noise:
        raise InputError(
            f"count_noise={count_noise:g} uses up all of noise={noise:g}; use one above {noise / 2:g}, or leave it out"
        )
    return float((noise**-2 - (2 * count_noise) ** -2) ** -0.5)


@cache  # asked for as the next round's, and as the last one's
def _epsilon(noise: float, share: float, delta: float, rounds: int) -> float:
    losses = _loss_of_round(noise, share).self_compose(rounds)
    with np.errstate(over="ignore"):  # above some 700 it is infinite
        return float(losses.get_epsilon_for_delta(delta))


@cache
def _loss_of_round(noise: float, share: float) -> Any:
    """Return the privacy loss of a round under poisson sampling, from above."""
    import_dp_accounting()
    from dp_accounting.pld import privacy_loss_distribution

    # Tiny noise has losses of 1 / noise^2, for which as many points are enough; large noise has losses of 1 / noise.
    interval = INTERVAL * max(1.0, (0.3 / noise) ** 2) / max(1.0, noise)
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=share
    )


@cache
def _divergences_of_round(accountant: Accountant) -> Any:
    """Return the Renyi divergences of a round; those of several rounds add up."""
    from dp_accounting.rdp import RdpAccountant

    event, neighbours = accountant._event()
    composed = RdpAccountant(ORDERS, neighbours)
    composed.compose(event)
    return composed.rdp


def _relations() -> Any:
    from dp_accounting.privacy_accountant import NeighboringRelation

    return NeighboringRelation


def import_dp_accounting() -> None:
    """Refuse to go on where dp-accounting is not installed."""
    try:
        import dp_accounting  # noqa: F401
    except ImportError as error:
        raise InputError('privacy needs dp-accounting; pip install "fedadmm[privacy]"') from error
