"""Numbers as whole numbers modulo 2^bits, whose sums are exact in any order."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[Any]  # unsigned whole numbers of 16, 32 or 64 bits, which wrap around
Numbers = npt.NDArray[np.float64]


Rule = Callable[[Numbers], Numbers]  # which whole number takes the place of a number


def drawn(generator: np.random.Generator) -> Rule:
    """Return the rule that draws from the two whole numbers next to a number, so that the mean is right."""

    def rule(numbers: Numbers) -> Numbers:
        below = np.floor(numbers)
        return below + (generator.random(numbers.shape) < numbers - below)

    return rule


class OutOfRangeError(ValueError):
    """A number that the encoding has no room for."""


class FixedPoint(NamedTuple):
    """Numbers from -largest to largest; a sum of up to `num_terms` of them is the sum, and never wraps around."""

    bits: int
    largest: float
    num_terms: int

    @property
    def binary_places(self) -> int:
        """How many digits there are after the binary point: as many as the largest sum leaves."""
        places = self.bits - 1 - math.floor(math.log2(self.num_terms * self.largest))
        while self.num_terms * (math.floor(self.largest * 2.0**places) + 1) >= 2 ** (self.bits - 1):
            places -= 1
        return places

    @property
    def step(self) -> float:
        """The distance between two numbers that can be told apart."""
        return 2.0**-self.binary_places

    def rounded(self, numbers: npt.ArrayLike, rule: Rule = np.rint) -> Numbers:
        """Return numbers as whole steps, to the nearest or by another rule.

        One that is out of range, or no number, raises OutOfRangeError.
        """
        exact = np.asarray(numbers, np.float64)
        farthest = float(np.abs(exact).max(initial=0.0))
        if not farthest <= self.largest:  # nor is NaN
            raise OutOfRangeError(f"{farthest:g} is beyond {self.largest:g}")
        return rule(exact * 2.0**self.binary_places) * self.step

    def words(self, rounded: npt.ArrayLike) -> Words:
        """Return the words of numbers that are whole steps."""
        whole = (np.asarray(rounded, np.float64) * 2.0**self.binary_places).astype(np.int64)
        return whole.astype(f"int{self.bits}").view(f"uint{self.bits}")

    def numbers(self, words: Words) -> Numbers:
        """Return the numbers that words stand for, or sums of words."""
        return words.view(f"int{self.bits}").astype(np.float64) * self.step
