"""What accuracy is shown against: rounds, and what they cost."""

from collections.abc import Sequence
from typing import NamedTuple

from fedadmm.report.methods import Array, MethodRuns


class Axis(NamedTuple):
    """What accuracy is drawn against."""

    key: str  # of a record
    title: str
    short: str  # title
    unit: str = ""

    def values(self, method: MethodRuns) -> Array:
        """Return where a method's curve has its points."""
        return method.curve.rounds if self.key == "round" else method.curve.totals[self.key]


ROUNDS = Axis("round", "rounds", "rounds")
BYTES = Axis("bytes_up", "bytes uploaded", "bytes", "B")
GRADIENTS = Axis("gradient_evaluations", "gradient evaluations", "gradients")
SECONDS = Axis("seconds", "seconds", "seconds", "s")
SIMULATED = Axis("simulated_seconds", "simulated seconds", "simulated seconds", "s")
AXES = (ROUNDS, BYTES, GRADIENTS, SECONDS)


def axes_of(methods: Sequence[MethodRuns]) -> tuple[Axis, ...]:
    """Return what some methods can be shown against: simulated time too, if all of them had a clock."""
    return (*AXES, SIMULATED) if all(method.has_clock for method in methods) else AXES
