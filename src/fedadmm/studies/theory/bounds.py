"""Theorem 1: its condition, its constants, its bound as printed, and a bound that holds from round 0."""

import math
from typing import NamedTuple

from fedadmm.core.errors import InputError


def smallest_rho(smoothness: float) -> float:
    """Return (1 + sqrt 5) L, which rho must exceed."""
    return (1 + math.sqrt(5)) * smoothness


def descent(*, rho: float, smoothness: float) -> float:
    """Return by how much a squared step of a client lowers the Lagrangian: (rho - 2L)/2 - 2L^2/rho."""
    return (rho - 2 * smoothness) / 2 - 2 * smoothness**2 / rho


class Assumptions(NamedTuple):
    """What the bounds are told of a run."""

    rho: float
    smoothness: float  # L
    p_min: float  # the smallest probability with which a client takes part in a round
    num_clients: int = 1  # m
    lowest: float = 0.0  # f*, at most the sum of all f_i anywhere
    epsilon: float = 0.0  # the largest squared error of a local solve, epsilon_max

    @property
    def constants(self) -> tuple[float, float, float]:
        """c_1, c_2 and c_3 of Theorem 1."""
        rho, smoothness, p_min = self.rho, self.smoothness, self.p_min
        if not rho > smallest_rho(smoothness):
            raise InputError(
                f"rho={rho:g} is too small for Theorem 1 with L={smoothness:g}; "
                f"use more than (1 + sqrt 5) L = {smallest_rho(smoothness):g}"
            )
        if not 0 < p_min <= 1:
            raise InputError(f"p_min={p_min:g} is not a probability for Theorem 1; use a number above 0 and up to 1")
        c_1 = p_min * descent(rho=rho, smoothness=smoothness)
        c_2 = 3 * (smoothness**2 + rho**2) + 2 * (1 + 2 * smoothness**2 / rho**2)
        c_3 = 3 + 16 / rho**2 + c_2 / c_1 * (rho + 16 * smoothness) / (2 * smoothness * rho)
        return c_1, c_2, c_3


def theorem_1(known: Assumptions, *, rounds: int, lagrangian: float) -> float:
    """Return the bound on the mean of V^t / m over `rounds` rounds, the first of which met this Lagrangian.

    It holds if every client was visited before that round.
    """
    c_1, c_2, c_3 = known.constants
    num_clients, epsilon = known.num_clients, known.epsilon
    room = lagrangian - known.lowest + num_clients * epsilon / (2 * known.smoothness)
    return c_2 / c_1 * room / (num_clients * rounds) + c_3 * epsilon


def theorem_1_from_start(known: Assumptions, *, rounds: int, lagrangian: float, gradients: float) -> float:
    """Return a bound on the same mean that holds from w_i = theta^0 and y_i = 0 on; docs/THEORY.md has the proof.

    gradients: the sum of |grad f_i(theta^0)|^2, the squared error of the duals that nobody has solved for yet.
    """
    c_1, c_2, _ = known.constants
    rho = known.rho
    start = c_2 / c_1 * (4 / rho + 1 / (2 * known.smoothness)) + 8 / (rho**2 * known.p_min)
    later = theorem_1(known, rounds=rounds, lagrangian=lagrangian)
    return start * gradients / (known.num_clients * rounds) + later
