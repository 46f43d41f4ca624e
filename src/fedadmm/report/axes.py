"""What accuracy is shown against: rounds, and what they cost."""

from collections.abc import Sequence
from typing import NamedTuple

from fedadmm.report.methods import Array, Method


class Axis(NamedTuple):
    """What accuracy is drawn against."""

    key: str  # of a record
    title: str
    unit: str = ""

    def values(self, method: Method) -> Array:
        """Return where a method's curve has its points."""
        return method.curve.rounds if self.key == "round" else method.curve.totals[self.key]


ROUNDS = Axis("round", "rounds")
BYTES = Axis("bytes_up", "bytes uploaded", "B")
GRADIENTS = Axis("gradient_evaluations", "gradient evaluations")
SECONDS = Axis("seconds", "seconds", "s")
SIMULATED = Axis("simulated_seconds", "simulated seconds", "s")
AXES = (ROUNDS, BYTES, GRADIENTS, SECONDS)


def axes_of(methods: Sequence[Method]) -> tuple[Axis, ...]:
    """Return what some methods can be shown against: simulated time too, if all of them had a clock."""
    return (*AXES, SIMULATED) if all(method.has_clock for method in methods) else AXES
