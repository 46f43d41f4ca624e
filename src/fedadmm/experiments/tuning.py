"""The same search for every method: a grid of learning rates, judged on held-out training examples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedadmm.experiments.experiment import Experiment
from fedadmm.experiments.records import Record, round_of_arrival

PAPER_RATES = (0.01, 0.1, 0.2, 0.5)
VALIDATION = 0.2  # of the training examples


@dataclass(frozen=True)
class Trial:
    """One method at one learning rate, over all seeds."""

    label: str
    learning_rate: float
    rounds_to_target: float  # mean over seeds; a run that never arrived counts as twice its length
    final_accuracy: float  # mean over seeds and the last fifth of the rounds; 0 where a run diverged


def trials_of(
    experiment: Experiment,
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    run: Callable[[Experiment], tuple[list[Record], bool]],
) -> list[Trial]:
    """Run an experiment at each learning rate on a validation split; `run` returns its history and if it diverged."""
    label = experiment.label or experiment.algorithm_name
    found = []
    for rate in rates:
        outcomes = [run(_trial(experiment, rate=rate, seed=seed)) for seed in seeds]
        arrivals = [round_of_arrival(h, experiment.target) or 2 * experiment.rounds for h, _ in outcomes]
        finals = [0.0 if diverged else _final_accuracy(h) for h, diverged in outcomes]
        found.append(Trial(label, rate, sum(arrivals) / len(seeds), sum(finals) / len(seeds)))
    return found


def best(trials: Sequence[Trial]) -> Trial:
    """Return the trial that arrived first; final accuracy decides between equals."""
    return min(trials, key=lambda trial: (trial.rounds_to_target, -trial.final_accuracy))


def _trial(experiment: Experiment, *, rate: float, seed: int) -> Experiment:
    data = experiment.data.replace(validation=VALIDATION)
    local = experiment.local.replace(learning_rate=rate)
    return experiment.replace(name=f"{experiment.name}-tune", seed=seed, data=data, local=local)


def _final_accuracy(history: list[Record]) -> float:
    last = [record.accuracy or 0.0 for record in history[-max(1, len(history) // 5) :]]
    return sum(last) / len(last)
