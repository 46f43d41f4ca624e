"""The same search for every method: successive halving over rounds, judged on held-out training examples."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedadmm.algorithms import FedProx
from fedadmm.config.experiment import Experiment, algorithm_from_table, algorithm_to_table
from fedadmm.core.metrics import Metric
from fedadmm.runs.records import Goal, Record

LEARNING_RATES = (0.01, 0.1, 0.2, 0.5)
FEDPROX_RHOS = (0.001, 0.01, 0.1, 1.0)
VALIDATION = 0.2  # of the training examples

Values = dict[str, float]  # learning_rate, and rho where it was searched
Ended = tuple[list[Record], bool]  # a run's history, and whether it diverged
Play = Callable[[Experiment], Ended]


def with_values(experiment: Experiment, values: Values) -> Experiment:
    """Return an experiment with a learning rate, and a rho if there is one, of its own."""
    changes: dict[str, Any] = {}
    if "learning_rate" in values:
        changes["local"] = experiment.local.replace(learning_rate=values["learning_rate"])
    if "rho" in values:
        changes["algorithm"] = algorithm_from_table(algorithm_to_table(experiment.algorithm) | {"rho": values["rho"]})
    return experiment.replace(**changes)


@dataclass(frozen=True)
class Trial:
    """One candidate: how long it was trained before others did better, and how well it did until then."""

    values: Values
    rounds: int
    arrival: float  # mean round of arrival over seeds, infinite if one never arrived
    score: float  # mean over seeds and the last fifth of the rounds, infinitely bad where a run diverged
    metric: Metric  # what the score is
    refused: int  # updates that were not finite, over all seeds


def grid(
    experiment: Experiment, *, rates: Sequence[float] = LEARNING_RATES, rhos: Sequence[float] = FEDPROX_RHOS
) -> list[Values]:
    """Return the candidates of a method: learning rates, and for FedProx rho too, as in the paper.

    A FedProx under a name of its own, such as fedprox_rho0.1, keeps the rho that it has.
    """
    keeps_its_name = experiment.label in (None, experiment.algorithm_name)
    if not (isinstance(experiment.algorithm, FedProx) and keeps_its_name):
        return [{"learning_rate": rate} for rate in rates]
    return [{"learning_rate": rate, "rho": rho} for rate in rates for rho in rhos]


def rungs(num_candidates: int, *, budget: int) -> list[tuple[int, int]]:
    """Return (candidates, rounds) of each stage: half of them go on, twice as far, and the budget is kept.

    The budget is in rounds and counts what is trained; a candidate that goes on does so from where it was.
    """
    stages = max(1, math.ceil(math.log2(num_candidates)))
    counts = [math.ceil(num_candidates / 2**stage) for stage in range(stages)]
    shares = [2.0**stage for stage in range(stages)]  # lengths, in units of the first
    cost = sum(n * (b - a) for n, a, b in zip(counts, [0.0, *shares], shares, strict=False))
    return [(n, max(1, int(share * budget / cost))) for n, share in zip(counts, shares, strict=True)]


def search(
    experiment: Experiment, candidates: Sequence[Values], *, rounds: int, seeds: Sequence[int], run: Play
) -> list[Trial]:
    """Return the trials, the winner first.

    rounds: how far the two finalists of four candidates are trained; every method gets the rounds that this takes.
    """
    stages = rungs(len(candidates), budget=4 * (rounds // 2) + 2 * (rounds - rounds // 2))
    left, goal = list(candidates), Goal.of(experiment)
    dropped: list[Trial] = []
    for (_, length), survivors in zip(stages, [*(count for count, _ in stages[1:]), 1], strict=True):
        ended = [_ended(experiment, values, length, seeds, run) for values in left]
        metric = goal.judge([record for runs in ended for history, _ in runs for record in history])
        trials = [
            _trial(values, length, runs, metric, target=experiment.target)
            for values, runs in zip(left, ended, strict=True)
        ]
        trials.sort(key=lambda trial: (trial.arrival, trial.metric.cost(trial.score)))
        left = [trial.values for trial in trials[:survivors]]
        dropped = trials[survivors:] + dropped
    return [trials[0], *dropped]


def _ended(experiment: Experiment, values: Values, rounds: int, seeds: Sequence[int], run: Play) -> list[Ended]:
    """Return a candidate's runs, one for each seed."""
    metric, name = Goal.of(experiment).metric, f"{experiment.name}-tune"
    base = with_values(experiment, values).replace(name=name, rounds=rounds, stop_at_target=False)
    if metric is None or not metric.needs_optimum:  # which is the optimum of all training examples
        base = base.replace(data=experiment.data.replace(validation=VALIDATION))
    return [run(base.replace(seed=seed)) for seed in seeds]


def _trial(values: Values, rounds: int, runs: Sequence[Ended], metric: Metric, *, target: float | None) -> Trial:
    histories = [history[:rounds] for history, _ in runs]
    arrivals = [metric.arrival(history, target) or math.inf for history in histories]
    scores = [metric.worst if diverged else _last_score(metric, history[:rounds]) for history, diverged in runs]
    refused = sum(len(record.refused) for history in histories for record in history)
    return Trial(values, rounds, sum(arrivals) / len(runs), sum(scores) / len(runs), metric, refused)


def _last_score(metric: Metric, history: list[Record]) -> float:
    """Return the mean score of the last fifth of the rounds, or of the last one that has a score."""
    last = metric.scores(history[-max(1, len(history) // 5) :]) or metric.scores(history)[-1:]
    return sum(last) / len(last) if last else metric.worst
