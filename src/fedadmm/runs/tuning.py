"""The same search for every method: successive halving over rounds, judged on held-out training examples."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedadmm.algorithms import FedProx
from fedadmm.config.experiment import Experiment, algorithm_from_table, algorithm_to_table
from fedadmm.core.errors import InputError
from fedadmm.core.metrics import ACCURACY, metric_named
from fedadmm.runs.records import Record

LEARNING_RATES = (0.01, 0.1, 0.2, 0.5)
FEDPROX_RHOS = (0.001, 0.01, 0.1, 1.0)
VALIDATION = 0.2  # of the training examples

Values = dict[str, float]  # learning_rate, and rho where it was searched
Play = Callable[[Experiment], tuple[list[Record], bool]]  # returns a run's history, and whether it diverged


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
    accuracy: float  # mean over seeds and the last fifth of the rounds; 0 where a run diverged
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
    if metric_named(experiment.metric).needs_optimum:
        raise InputError(
            f'metric = "{experiment.metric}" needs the optimum of all training examples, and tuning holds some of them '
            "out; leave metric out to tune by accuracy"
        )
    stages = rungs(len(candidates), budget=4 * (rounds // 2) + 2 * (rounds - rounds // 2))
    left = list(candidates)
    dropped: list[Trial] = []
    for (_, length), survivors in zip(stages, [*(count for count, _ in stages[1:]), 1], strict=True):
        trials = [_trial(experiment, values, length, seeds, run) for values in left]
        trials.sort(key=lambda trial: (trial.arrival, -trial.accuracy))
        left = [trial.values for trial in trials[:survivors]]
        dropped = trials[survivors:] + dropped
    return [trials[0], *dropped]


def _trial(experiment: Experiment, values: Values, rounds: int, seeds: Sequence[int], run: Play) -> Trial:
    name, data = f"{experiment.name}-tune", experiment.data.replace(validation=VALIDATION)
    base = with_values(experiment, values).replace(name=name, rounds=rounds, stop_at_target=False, data=data)
    arrivals, accuracies, refused = [], [], 0
    for seed in seeds:
        history, diverged = run(base.replace(seed=seed))
        arrivals.append(ACCURACY.arrival(history[:rounds], experiment.target) or math.inf)
        accuracies.append(0.0 if diverged else _last_accuracy(history[:rounds]))
        refused += sum(len(record.refused) for record in history[:rounds])
    return Trial(values, rounds, sum(arrivals) / len(seeds), sum(accuracies) / len(seeds), refused)


def _last_accuracy(history: list[Record]) -> float:
    last = [record.accuracy or 0.0 for record in history[-max(1, len(history) // 5) :]]
    return sum(last) / len(last)
