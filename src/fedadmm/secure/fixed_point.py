"""Numbers as whole numbers modulo 2^bits, whose sums are exact in any order."""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[Any]  # unsigned whole numbers of 32 or 64 bits, which wrap around


class OutOfRangeError(ValueError):
    """A number that the encoding has no room for."""


class FixedPoint(NamedTuple):
    """Numbers from -largest to largest; a sum of up to `num_terms` of them is the sum, and never wraps around."""

    bits: int  # 32 or 64
    largest: float
    num_terms: int

    @property
    def binary_places(self) -> int:
        """How many digits there are after the binary point: the finest step is 2^-places."""
        places = self.bits - 1 - math.floor(math.log2(self.num_terms * self.largest))
        while self.num_terms * (math.floor(self.largest * 2.0**places) + 1) >= 2 ** (self.bits - 1):
            places -= 1
        return places

    @property
    def step(self) -> float:
        """The distance between two numbers that can be told apart."""
        return 2.0**-self.binary_places

    def encode(self, numbers: npt.NDArray[Any], generator: np.random.Generator) -> Words:
        """Return the words of some numbers; each is rounded up or down at random, so that it is right in the mean."""
        exact = np.asarray(numbers, np.float64)
        farthest = float(np.abs(exact).max(initial=0.0))
        if not farthest <= self.largest:  # nor is NaN
            raise OutOfRangeError(f"{farthest:g} is beyond {self.largest:g}")
        scaled = exact * 2.0**self.binary_places
        signed = np.floor(scaled + generator.random(scaled.shape)).astype(np.int64)
        return signed.astype(np.int32).view(np.uint32) if self.bits == 32 else signed.view(np.uint64)

    def decode(self, total: Words) -> npt.NDArray[np.float64]:
        """Return the numbers that a sum of words stands for."""
        signed = total.view(np.int32 if self.bits == 32 else np.int64)
        return signed.astype(np.float64) * self.step
