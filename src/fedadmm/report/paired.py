"""Whether two methods differ by more than their seeds do: a paired test, because a seed deals both the same data."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedadmm.report.methods import Array, MethodRuns, by_arrival
from fedadmm.report.runs import RunData

LEVEL = 0.05  # a p-value above it is called noise


class Paired(NamedTuple):
    """The mean difference of pairs, its standard deviation, and the p-value of a test."""

    mean: float
    spread: float
    p: float
    test: str = "paired t-test"


def paired_test(first: Array, second: Array) -> Paired:
    """Return the two-sided t-test of pairs, two or more of them; p is 1 where all are level.

    Where all pairs are apart by the same, as a few whole numbers of rounds often are, that test would be certain of
    anything: it is the sign test then.
    """
    from scipy.special import stdtr  # a fifth of a second, and most reports have one seed

    apart = first - second
    mean, spread = float(apart.mean()), float(apart.std(ddof=1))
    if spread <= 1e-12 * abs(mean) or spread == 0:
        return Paired(mean, spread, 1.0) if mean == 0 else Paired(mean, spread, 0.5 ** (len(apart) - 1), "sign test")
    return Paired(mean, spread, float(2 * stdtr(len(apart) - 1, -abs(mean) * np.sqrt(len(apart)) / spread)))


def paired_sentences(methods: Sequence[MethodRuns]) -> list[str]:
    """Return whether the best method differs from each other one, from the next best on.

    Two are compared over the seeds that both have, two or more: in rounds to the target if both reached it with every
    seed, else in their last scores.
    """
    best, *others = by_arrival(methods)
    return [sentence for other in others if (sentence := _sentence(best, other))]


def _sentence(first: MethodRuns, second: MethodRuns) -> str:
    """Return whether two methods differ, "" for fewer than two seeds that both have."""
    pairs = _pairs(first, second)
    metric, unit = first.metric, "rounds to the target"
    values: list[tuple[float | None, float | None]] = [(one.arrival, other.arrival) for one, other in pairs]
    if any(None in pair for pair in values):
        values, unit = [(_last(one), _last(other)) for one, other in pairs], f"final {metric.name}"
    known = np.array([pair for pair in values if None not in pair], dtype=np.float64)
    if len(known) < 2:
        return ""
    in_scores = unit.startswith("final")
    text, spread = (metric.text, metric.spread_text) if in_scores else ("{:.1f}".format, "{:.1f}".format)
    found, (mine, its) = paired_test(*known.T), known.mean(axis=0)
    verdict = "this difference may be noise" if found.p > LEVEL else "more than noise"
    p = "p < 0.001" if found.p < 0.001 else f"p = {found.p:.2g}"
    return (
        f"{first.name} against {second.name}, {len(known)} seeds: {unit} {text(mine)} and {text(its)}, difference "
        f"{spread(found.mean)} with a standard deviation of {spread(found.spread)} over seeds, {found.test} {p}: "
        f"{verdict}."
    )


def _pairs(first: MethodRuns, second: MethodRuns) -> list[tuple[RunData, RunData]]:
    its = {run.experiment.get("seed"): run for run in second.runs}
    return [(run, its[seed]) for run in first.runs if (seed := run.experiment.get("seed")) in its]


def _last(run: RunData) -> float | None:
    return run.known_scores[-1] if run.known_scores else None
