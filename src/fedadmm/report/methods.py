"""Runs that differ in nothing but the seed are one method: a mean, and its spread over the seeds."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedadmm.core.metrics import EPSILON, Metric, metric_like
from fedadmm.report.runs import RunData, without_repeats
from fedadmm.report.styles import Style, styles_for

FEDADMM, RELEASED = "fedadmm", "fedadmm_released"
Array = npt.NDArray[np.float64]


class Estimate(NamedTuple):
    """A mean over seeds and its standard deviation, None for a single seed."""

    mean: float
    spread: float | None

    def text(self, metric: Metric) -> str:
        """Return it as text, such as 0.912 ± 0.004."""
        spread = "" if self.spread is None else f" ± {metric.spread_text(self.spread)}"
        return f"{metric.text(self.mean)}{spread}"


class Curve(NamedTuple):
    """A method's score, at the rounds at which any of its seeds has one."""

    rounds: Array
    mean: Array
    spread: Array | None  # None for a single seed
    seeds: Array  # how many stand behind each mean
    totals: dict[str, Array]  # what rounds cost, such as bytes_up, added up and averaged over seeds

    def band(self, metric: Metric) -> tuple[Array, Array] | None:
        """Return the mean less and plus its spread, as far as scores go; None for a single seed."""
        if self.spread is None:
            return None
        return np.maximum(self.mean - self.spread, metric.lowest), np.minimum(self.mean + self.spread, metric.highest)


@dataclass(frozen=True)
class MethodRuns:
    """The runs of a label that differ in their seed only, and what they amount to."""

    name: str  # unlike every other method's in its section
    style: Style
    runs: tuple[RunData, ...]  # one per seed

    @cached_property
    def arrivals(self) -> list[int]:
        """The rounds in which the seeds that arrived did so."""
        return [run.arrival for run in self.runs if run.arrival is not None]

    @property
    def rounds_to_target(self) -> float | None:
        """The mean over all seeds, None unless every seed arrived: a mean over some would hide the misses."""
        return float(np.mean(self.arrivals)) if len(self.arrivals) == len(self.runs) else None

    @property
    def metric(self) -> Metric:
        """What the runs are judged by."""
        return self.runs[0].metric

    @property
    def is_fedadmm(self) -> bool:
        """Whether the method is Algorithm 1 in any of its forms, not its successor, and not the released code."""
        return self.runs[0].algorithm.startswith(FEDADMM) and not self.is_released

    @property
    def is_released(self) -> bool:
        """Whether the method is what the paper's released code does."""
        return self.runs[0].algorithm == RELEASED

    @cached_property
    def has_clock(self) -> bool:
        """Whether the rounds of all seeds lasted some simulated time."""
        return all(run.has_clock for run in self.runs)

    @cached_property
    def final(self) -> Estimate | None:
        """The last score."""
        return estimate([known[-1] for run in self.runs if (known := run.known_scores)])

    @cached_property
    def best(self) -> Estimate | None:
        """The best score of each seed."""
        return estimate([best for run in self.runs if (best := self.metric.best(run.known_scores)) is not None])

    @cached_property
    def worst_clients(self) -> Estimate | None:
        """The last mean score of the tenth of the clients that fare worst, where clients have test examples."""
        worst = metric_like(f"{self.metric.name}_client_worst_decile")
        return estimate([known[-1] for run in self.runs if (known := worst.scores(run.rounds))])

    @cached_property
    def epsilon(self) -> float | None:
        """What the longest run has spent of its privacy budget, None where there is no [privacy]."""
        return max((known[-1] for run in self.runs if (known := EPSILON.scores(run.rounds))), default=None)

    @property
    def status(self) -> str:
        """\"finished\", or what became of the others, such as \"1/3 diverged\"."""
        found = Counter(run.status for run in self.runs)
        del found["finished"]
        count = len(self.runs)
        return ", ".join(s if count == 1 else f"{n}/{count} {s}" for s, n in found.items()) or "finished"

    @cached_property
    def curve(self) -> Curve:
        """The curve of what the runs are judged by."""
        return self.curve_of(self.metric)

    def curve_of(self, metric: Metric) -> Curve:
        """Return the mean over the seeds that have a round, which may be fewer than all where some stopped early.

        A seed that diverged keeps its last score: without it the mean would seem to recover.
        """
        scores = _stack([run.steps(metric.name) for run in self.runs], self.length)
        for row, run in zip(scores, self.runs, strict=True):
            if run.status == "diverged" and (known := metric.scores(run.rounds)):
                row[len(run.rounds) :] = known[-1]
        seeds = np.sum(~np.isnan(scores), axis=0)
        kept = np.flatnonzero(seeds)
        mean, spread = _mean_and_spread(scores[:, kept], seeds[kept])
        totals = {key: total[kept] for key, total in self.totals.items()}
        return Curve(kept.astype(np.float64) + 1, mean, None if len(self.runs) == 1 else spread, seeds[kept], totals)

    @property
    def length(self) -> int:
        """The number of rounds of the longest seed."""
        return max(len(run.rounds) for run in self.runs)

    @cached_property
    def totals(self) -> dict[str, Array]:
        """What the rounds cost, such as bytes_up, added up and averaged over seeds, for each round."""
        # Steps are averaged before they are added up: the total then never falls where a seed ends.
        return {
            axis.key: np.cumsum(np.nanmean(_stack([run.steps(axis.key) for run in self.runs], self.length), axis=0))
            for axis in axes_of([self])
            if axis is not ROUNDS
        }

    def quantiles_of(self, metric: Metric) -> tuple[Array, Array] | None:
        """Return the last scores of clients on examples of their own, deciles from the worst on, and their spread.

        None where no seed has them (data.client_test).
        """
        found = [run.client_quantiles[metric.name] for run in self.runs if metric.name in run.client_quantiles]
        if not found:
            return None
        rising, spread = _mean_and_spread(np.array(found, dtype=np.float64), np.array(len(found)))
        return (rising[::-1], spread[::-1]) if metric.lower_is_better else (rising, spread)


def _mean_and_spread(values: Array, seeds: Array) -> tuple[Array, Array]:
    """Return the mean over the seeds that have a value, and the standard deviation, of values [seed, ...]."""
    mean: Array = np.nansum(values, axis=0) / seeds
    return mean, np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(seeds - 1, 1))


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean and the standard deviation of a sample, None if there are no values."""
    if not values:
        return None
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


def methods_of(runs: Sequence[RunData]) -> list[MethodRuns]:
    """Return the methods behind some runs, in the order of their first runs."""
    return methods_in([runs])[0]


def by_arrival(methods: Sequence[MethodRuns]) -> list[MethodRuns]:
    """Return methods in the order in which they reached the target; those that did not come last, the best first."""

    def rank(method: MethodRuns) -> tuple[float, float, float]:
        missed = 1 - len(method.arrivals) / len(method.runs)
        final = math.inf if method.final is None else method.metric.cost(method.final.mean)
        return missed, float(np.mean(method.arrivals)) if method.arrivals else math.inf, final

    return sorted(methods, key=rank)


def methods_in(sections: Sequence[Sequence[RunData]]) -> list[list[MethodRuns]]:
    """Return the methods of each section of a report, in the order of their first runs; one style for a name."""
    named = [_named_groups(runs) for runs in sections]
    labels = {name: group[0].label for groups in named for name, group in groups.items()}
    styles = dict(zip(labels, styles_for(list(labels.values())), strict=True))
    return [
        [MethodRuns(name, styles[name], tuple(sorted(group, key=_seed))) for name, group in groups.items()]
        for groups in named
    ]


def _named_groups(runs: Sequence[RunData]) -> dict[str, list[RunData]]:
    """Return runs that differ in their seed only, by a name that is theirs alone."""
    groups: dict[str, list[RunData]] = defaultdict(list)
    for run in without_repeats(runs)[0]:
        groups[run.identity].append(run)
    alike: dict[str, list[RunData]] = defaultdict(list)
    for group in groups.values():
        alike[group[0].label].append(group[0])
    named: dict[str, list[RunData]] = {}
    for group in groups.values():
        name = _name(group[0], alike[group[0].label])
        named[name if name not in named else f"{name} ({group[0].path.name})"] = group
    return named


def much_longer(methods: Sequence[MethodRuns]) -> MethodRuns | None:
    """Return a method that has many more rounds than the others, as FedSGD has, and would leave them no room."""
    planned = [max(run.experiment["rounds"] for run in method.runs) for method in methods]
    if len(methods) < 2 or max(planned) <= 3 * sorted(planned)[-2]:
        return None
    return methods[planned.index(max(planned))]


def _name(run: RunData, alike: Sequence[RunData]) -> str:
    """Return the label; where others have it too, with the settings in which it differs from them."""
    keys = sorted({key for other in alike for key in other.settings})
    differing = [key for key in keys if len({json.dumps(other.settings.get(key)) for other in alike}) > 1]
    # "compression.name" says more as "compression"; what a run does not have goes without saying.
    own = [key for key in differing if key in run.settings]
    said = ", ".join(f"{key.removesuffix('.name').rpartition('.')[2]}={run.settings[key]}" for key in own)
    return f"{run.label} ({said})" if said else run.label


def _seed(run: RunData) -> str:
    return str(run.experiment.get("seed", 0)).rjust(20)


def _stack(rows: Sequence[Array], length: int) -> Array:
    """Return rows of different lengths as one array [seed, round], NaN where a row has ended."""
    table = np.full((len(rows), length), np.nan)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


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
