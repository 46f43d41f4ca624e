"""What runs are judged by: the test accuracy, or the distance to the optimum of a convex problem."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

MetricName = Literal["accuracy", "distance"]


class Scored(Protocol):
    """A round with its numbers."""

    @property
    def round(self) -> int:
        """The round's number, from 1 on."""

    def value(self, key: str) -> float | None:
        """Return a number of the round, None where it has none."""


@dataclass(frozen=True)
class Metric:
    """A score of a round: its key in a record, its title in a figure, which way is better, and how it is written."""

    name: str
    title: str
    example: str  # a target, for those who ask
    lower_is_better: bool = False
    highest: float = math.inf
    digits: str = ".3f"  # in a text
    digits_drawn: str = ".4f"
    log_scale: bool = False  # it is drawn over powers of ten
    needs_optimum: bool = False  # of all training examples, which is found before the first round

    def of(self, record: Scored) -> float | None:
        """Return the score of a round, None if it has none."""
        return record.value(self.name)

    def text(self, score: float) -> str:
        """Return a score in as many digits as tell something, such as 0.912 or 3.1e-05."""
        return f"{score:{self.digits}}"

    def named_text(self, score: float) -> str:
        """Return a score with its name, such as accuracy 0.912."""
        return f"{self.name} {self.text(score)}"

    def reached(self, score: float, target: float) -> bool:
        """Return whether a score is as good as the target."""
        return score <= target if self.lower_is_better else score >= target

    def best(self, scores: Iterable[float]) -> float | None:
        """Return the best of some scores, None if there are none."""
        return (min if self.lower_is_better else max)(scores, default=None)

    def scores(self, records: Iterable[Scored]) -> list[float]:
        """Return the scores of the rounds that have one."""
        return [score for record in records if (score := self.of(record)) is not None]

    def arrival(self, records: Sequence[Scored], target: float | None) -> int | None:
        """Return the first round whose score reached the target, None if none did."""
        if target is None:
            return None
        for record in records:
            score = self.of(record)
            if score is not None and self.reached(score, target):
                return record.round
        return None


ACCURACY = Metric("accuracy", "test accuracy", "0.9", highest=1.0)
DISTANCE = Metric(
    "distance",
    "distance to the optimum",
    "1e-6",
    lower_is_better=True,
    digits=".1e",
    digits_drawn=".3e",
    log_scale=True,
    needs_optimum=True,
)
METRICS = {metric.name: metric for metric in (ACCURACY, DISTANCE)}


def metric_named(name: str | None) -> Metric:
    """Return the metric of this name; the test accuracy where an experiment names none."""
    return ACCURACY if name is None else METRICS[name]
