"""What runs are judged by: any number of a record, such as the test accuracy, a loss, or a metric of the user's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fedadmm.core.errors import InputError, near_names

Direction = Literal["higher", "lower"]


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
    example: str = "0.5"  # a target, for those who ask
    lower_is_better: bool = False
    lowest: float = -math.inf
    highest: float = math.inf
    digits: str = ".4g"  # in a text
    digits_drawn: str = ".5g"
    log_scale: bool = False  # it is drawn over powers of ten
    needs_optimum: bool = False  # of all training examples, which is found before the first round

    def of(self, record: Scored) -> float | None:
        """Return the score of a round, None if it has none."""
        return record.value(self.name)

    def text(self, score: float) -> str:
        """Return a score in as many digits as tell something, such as 0.912 or 3.1e-05."""
        return f"{score:{self.digits}}"

    def spread_text(self, spread: float) -> str:
        """Return the spread of scores, as they are written, in no more than two digits where those vary."""
        return f"{spread:.2g}" if self.digits.endswith("g") else self.text(spread)

    def named_text(self, score: float) -> str:
        """Return a score with its name, such as accuracy 0.912."""
        return f"{self.name} {self.text(score)}"

    def reached(self, score: float, target: float) -> bool:
        """Return whether a score is as good as the target."""
        return score <= target if self.lower_is_better else score >= target

    @property
    def worst(self) -> float:
        """A score below all others."""
        return math.inf if self.lower_is_better else self.lowest

    def cost(self, score: float) -> float:
        """Return a number that is lower, the better a score is."""
        return score if self.lower_is_better else -score

    def best(self, scores: Iterable[float]) -> float | None:
        """Return the best of some scores, None if there are none."""
        return min(scores, key=self.cost, default=None)

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

    def check_target(self, target: float) -> None:
        """Refuse a target that no run could miss or reach."""
        share = self.lowest == 0  # of 1, or of the distance before the first round
        if not math.isfinite(target) or (share and not 0 < target <= 1):
            numbers = "a number above 0 and up to 1" if share else "a finite number"
            raise InputError(
                f"target={target} is out of range for the {self.name}; use {numbers}, such as {self.example}"
            )


ACCURACY = Metric("accuracy", "test accuracy", "0.9", lowest=0.0, highest=1.0, digits=".3f", digits_drawn=".4f")
LOSS = Metric("loss", "test loss", lower_is_better=True)
CLIENT_LOSS = Metric("client_loss", "training loss of the round's clients", lower_is_better=True)
DISTANCE = Metric(
    "distance",
    "distance to the optimum",
    "1e-6",
    lower_is_better=True,
    lowest=0.0,
    digits=".1e",
    digits_drawn=".3e",
    log_scale=True,
    needs_optimum=True,
)
EPSILON = Metric("epsilon_spent", "epsilon spent so far", lower_is_better=True, lowest=0.0)  # judges no run
CLIENT_KINDS = ("mean", "std", "worst_decile")  # what a record has of a metric over clients
METRICS = {metric.name: metric for metric in (ACCURACY, LOSS, CLIENT_LOSS, DISTANCE)}

# Words of a user's metric that say which way is better.
HIGHER = {"accuracy", "acc", "auc", "auroc", "bleu", "dice", "f1", "iou", "map", "precision", "psnr", "r2", "recall"}
LOWER = {"brier", "ece", "err", "error", "loss", "mae", "mape", "mse", "nll", "perplexity", "ppl", "rmse", "std", "wer"}


def lower_is_better(name: str, direction: str | None = None) -> bool | None:
    """Return which way is better: as known of our metrics, as given, or as a name says it; None if it does not."""
    if name in METRICS:
        return METRICS[name].lower_is_better
    if direction is not None:
        return direction == "lower"
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    told = [lower for lower, said in ((False, HIGHER), (True, LOWER)) if words & said]
    return told[0] if len(told) == 1 else None


def metric_named(name: str, direction: str | None = None) -> Metric:
    """Return the metric of this name; which way is better in a user's is given, or its name says it."""
    lower = lower_is_better(name, direction)
    if direction not in (None, "higher", "lower"):
        raise InputError(f'direction={direction!r} is unknown; use "higher" or "lower"')
    if lower is None:
        raise InputError(f'metric="{name}" does not say what is better; add direction = "higher", or "lower"')
    if direction is not None and lower != (direction == "lower"):
        raise InputError(f'direction="{direction}" is not that of the {name}; leave direction out')
    return METRICS.get(name) or Metric(name, name, lower_is_better=lower)


def metric_like(name: str) -> Metric:
    """Return a metric to draw a number of a record by, even where nobody said what is better."""
    known = METRICS | {EPSILON.name: EPSILON}
    return known.get(name) or Metric(name, name, lower_is_better=lower_is_better(name) or False)


def of_clients(names: Iterable[str]) -> list[str]:
    """Return the names of what a record has of each metric, where clients are scored on examples of their own."""
    return [f"{name}_client_{kind}" for name in names for kind in CLIENT_KINDS]


def check_goal(
    metric: str | None,
    direction: str | None,
    target: float | None,
    *,
    own: Iterable[str],
    client_test: bool,
    stop_at_target: bool = False,
) -> None:
    """Refuse a metric that is neither ours nor the user's own, one without a direction, and a target out of range."""
    known = [*METRICS, *own]
    known += of_clients(["accuracy", "loss", *own]) if client_test else []
    if metric is not None and metric not in known:
        remedy = near_names(metric, known, what="metrics")
        other = "" if remedy.endswith("?") else "; define others in [model.metrics], or metrics={...}"
        raise InputError(f"metric={metric!r} is unknown; {remedy}{other}")
    if metric is None and direction is not None:
        raise InputError(f'direction="{direction}" has no metric; give metric too, or leave direction out')
    judge = ACCURACY if metric is None else metric_named(metric, direction)
    if target is not None:
        judge.check_target(target)
    elif stop_at_target:
        raise InputError("stop_at_target is set, and there is no target; give target, or leave it out")


def default_metric(records: Iterable[Scored]) -> Metric:
    """Return what runs are judged by that name no metric: the test accuracy, or the loss where there is only that."""
    values = [(ACCURACY.of(record), LOSS.of(record)) for record in records]
    only_loss = all(accuracy is None for accuracy, _ in values) and any(loss is not None for _, loss in values)
    return LOSS if only_loss else ACCURACY
