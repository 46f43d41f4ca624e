"""What runs are judged by: the test accuracy, or the distance to the optimum of a convex problem."""

from typing import Any, NamedTuple


class Metric(NamedTuple):
    """A score of a round: its key in a record, its name in a figure, and which way is better."""

    key: str
    title: str
    low: bool  # is better, and is drawn over powers of ten

    def text(self, value: float) -> str:
        """Return a score in as many digits as tell something."""
        return f"{value:.1e}" if self.low else f"{value:.3f}"

    def reached(self, scores: Any, target: float) -> Any:
        """Return whether each score is as good as the target."""
        return scores <= target if self.low else scores >= target

    def best(self, scores: Any) -> float:
        """Return the best of some scores."""
        return float(min(scores) if self.low else max(scores))


ACCURACY = Metric("accuracy", "test accuracy", low=False)
DISTANCE = Metric("distance", "distance to the optimum", low=True)
