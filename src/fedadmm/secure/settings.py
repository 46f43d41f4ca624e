"""The table [secure] of an experiment."""

import math
from typing import Annotated, Literal

from fedadmm.core.errors import InputError
from fedadmm.core.settings import Positive, Settings, within
from fedadmm.secure.fixed_point import FixedPoint


class Secure(Settings):
    """Secure aggregation: the server learns the sum of a round's uploads, and none of them (docs/PRIVACY.md).

    range = 16.0: the largest absolute value of a coordinate of an upload; a client with a larger one sends nothing.
    bits = 32: of a coordinate, as it travels: 16, 32 or 64. What range and the number of clients leave of them are the
        digits after the binary point: 20 of 32 for 100 clients and a range of 16.
    threshold = 0.5: more than this share of a client's neighbours have to be left for a round to count. Fewer than
        these who help the server learn nothing but the sum of the others.
    neighbours = 32: how many others a client shares its masks with; all, where fewer are asked.
    """

    range: Positive = 16.0
    bits: Literal[16, 32, 64] = 32
    threshold: Annotated[float, within("a number from 0.5 to below 1", lambda share: 0.5 <= share < 1)] = 0.5
    neighbours: Annotated[int, within("a whole number from 2 on", lambda number: number >= 2)] = 32

    def degree(self, num_asked: int) -> int:
        """Return the number of a client's neighbours in a round that asks this many clients."""
        degree = min(self.neighbours, num_asked - 1)
        return degree - degree % 2 * (num_asked % 2)  # as many as a graph of so many can have

    def shares_needed(self, num_asked: int) -> int:
        """Return the number of neighbours that have to be left of each client, whose shares give its seed."""
        return math.floor(self.threshold * max(self.degree(num_asked), 1)) + 1

    def coordinates(self, num_clients: int) -> FixedPoint:
        """Return how a coordinate is encoded; refuse a range that leaves no digits."""
        found = FixedPoint(self.bits, self.range, num_clients)
        if found.binary_places < 1:
            more = ", or bits = 64" if self.bits < 64 else ""
            raise InputError(
                f"range={self.range:g} and {num_clients} clients leave none of {self.bits} bits for fractions; use a "
                f"smaller range{more}"
            )
        return found
