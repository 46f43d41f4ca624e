"""A lower bound on epsilon from one run (Steinke, Nasr and Jagielski, NeurIPS 2023).

Each of m canaries is put in or left out by a fair coin. Whoever sees what was released guesses of some of them which it
was. If the release is (epsilon, delta)-private, each guess is right with a probability of at most p = e^epsilon / (1 +
e^epsilon), whatever the others were, up to delta. So v right guesses out of r have a probability of at most

    P[Bin(r, p) >= v] + 2 m delta max over i = 1..v of P[v - i <= Bin(r, p) < v] / i                     (Theorem 5.2)

and an epsilon at which that is below 5 % is refuted.
"""

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

Array = npt.NDArray[np.float64]


def epsilon_refuted(scores: Array, is_in: npt.NDArray[np.bool_], *, num_guesses: int, delta: float) -> float:
    """Return the largest epsilon that is refuted at 5 %; highest scores are guessed to be in, lowest to be out."""
    order, half = np.argsort(scores), num_guesses // 2
    right = int((~is_in[order[:half]]).sum() + is_in[order[-half:]].sum())
    low, high = 0.0, 20.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        refuted = likelihood(right, 2 * half, len(scores), epsilon=middle, delta=delta) < 0.05
        low, high = (middle, high) if refuted else (low, middle)
    return low


def likelihood(right: int, num_guesses: int, num_canaries: int, *, epsilon: float, delta: float) -> float:
    """Return how probable so many right guesses can be under (epsilon, delta)-privacy."""
    guesses = binom(num_guesses, 1 / (1 + np.exp(-epsilon)))
    just_below = np.cumsum(guesses.pmf(right - np.arange(1, right + 1))) / np.arange(1, right + 1)
    return float(guesses.sf(right - 1) + 2 * num_canaries * delta * just_below.max(initial=0.0))
