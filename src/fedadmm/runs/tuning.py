"""The same search for every method: successive halving over rounds, judged on held-out training examples.

What it finds is in a file, by the experiment's name and the method.
"""

import itertools
import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tomli_w

from fedadmm.algorithms import FedProx
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import Plan
from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.core.metrics import Metric
from fedadmm.runs.goal import Goal
from fedadmm.runs.records import Record

LEARNING_RATES = (0.01, 0.1, 0.2, 0.5)
FEDPROX_RHOS = (0.001, 0.01, 0.1, 1.0)
VALIDATION = 0.2  # of the training examples

TUNED_FILE = "tuned.toml"

Values = dict[str, Any]  # by their keys in an experiment, such as "algorithm.rho"
SHORT = {"learning_rate": "local.learning_rate", "rho": "algorithm.rho"}  # keys that tuned.toml writes so
Search = Mapping[str, Sequence[Any]]  # the values to try, by their keys
Tuned = dict[str, dict[str, Values]]  # by the experiment's name and the method
Ended = tuple[list[Record], bool]  # a run's history, and whether it diverged
PlayAll = Callable[[Sequence[Experiment]], Sequence[Ended]]


def full_key(key: str) -> str:
    """Return a key as an experiment has it."""
    return SHORT.get(key, key)


def with_values(experiment: Experiment, values: Values) -> Experiment:
    """Return an experiment with these values in the place of its own."""
    plan = Plan(tomllib.loads(experiment.to_toml()))
    return plan.experiment(changes={full_key(key): value for key, value in values.items()})


@dataclass(frozen=True)
class Trial:
    """One candidate: how long it was trained before others did better, and how well it did until then."""

    values: Values
    rounds: int  # that it was trained
    arrival: float  # mean round of arrival over seeds, infinite if one never arrived
    score: float  # mean over seeds and the last fifth of the rounds, infinitely bad where a run diverged
    metric: Metric  # what the score is
    refused: int  # updates that were not finite, over all seeds

    def row(self) -> dict[str, str]:
        """Return it as a row of a table."""
        return {
            "values": values_text(self.values),
            "rounds trained": str(self.rounds),
            "to target": "-" if math.isinf(self.arrival) else f"{self.arrival:.1f}",
            self.metric.name: "-" if math.isinf(self.score) else self.metric.text(self.score),
            "refused updates": str(self.refused),
        }


def values_text(values: Values) -> str:
    """Return values by the last words of their keys, such as rho 0.1, learning_rate 0.5."""
    shown = ((key.rpartition(".")[2], value) for key, value in values.items())
    return ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in shown)


def at_the_edge(trials: Sequence[Trial]) -> list[str]:
    """Return a sentence for each number of the winner, the first trial, that is the least or the largest tried."""
    sentences = []
    for key, value in trials[0].values.items():
        tried = [trial.values[key] for trial in trials]
        if any(isinstance(one, bool) or not isinstance(one, int | float) for one in tried) or len(set(tried)) < 2:
            continue
        if value in (min(tried), max(tried)):
            which, beyond = ("smallest", "smaller") if value == min(tried) else ("largest", "larger")
            sentences.append(f"{values_text({key: value})} is the {which} that was tried; try {beyond} ones as well.")
    return sentences


def trial_rows(trials: Sequence[Trial]) -> list[dict[str, str]]:
    """Return a row for each trial; refused updates are told where there were any."""
    rows = [trial.row() for trial in trials]
    if not any(trial.refused for trial in trials):
        for row in rows:
            del row["refused updates"]
    return rows


def grid(
    experiment: Experiment, search: Search | None = None, *, rates: Sequence[float] = LEARNING_RATES
) -> list[Values]:
    """Return the candidates of a method: all combinations of the values, without keys that it does not have.

    By default they are learning rates, and for FedProx rho too, as in the paper. A FedProx under a name of its own,
    such as fedprox_rho0.1, keeps the rho that it has.
    """
    if search is None:
        own = isinstance(experiment.algorithm, FedProx) and experiment.label in (None, experiment.algorithm_name)
        search = {"learning_rate": rates} | ({"rho": FEDPROX_RHOS} if own else {})
    keys = [key for key in search if has_key(experiment, key)]
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(search[key] for key in keys))]


def has_key(experiment: Experiment, key: str) -> bool:
    """Return whether a method has a key of [algorithm]; other keys every experiment has."""
    table, _, name = full_key(key).partition(".")
    return table != "algorithm" or name.partition(".")[0] in {field.name for field in fields(experiment.algorithm)}


def check_search(search: Search, experiments: Sequence[Experiment]) -> None:
    """Refuse a key that no method has, and one without values; a value that does not fit is found here, too."""
    if not search:
        raise InputError("search is empty; give keys and their values, such as {'local.learning_rate': [0.1, 0.5]}")
    for key, values in search.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InputError(f"the values of {key} are {values!r}; list those to try, such as [0.01, 0.1, 1.0]")
        having = [experiment for experiment in experiments if has_key(experiment, key)]
        if not having:
            methods = ", ".join(experiment.method for experiment in experiments)
            raise InputError(f"no method has the key {key}; {methods} were asked for")
        for value in values:
            with_values(having[0], {key: value})


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
    experiment: Experiment, candidates: Sequence[Values], *, rounds: int, seeds: Sequence[int], run_all: PlayAll
) -> list[Trial]:
    """Return the trials, the winner first.

    rounds: how far the two finalists of four candidates are trained; every method gets the rounds that this takes.
    """
    stages = rungs(len(candidates), budget=4 * (rounds // 2) + 2 * (rounds - rounds // 2))
    left, goal = list(candidates), Goal.of(experiment)
    dropped: list[Trial] = []
    for (_, length), survivors in zip(stages, [*(count for count, _ in stages[1:]), 1], strict=True):
        played = iter(run_all([one for values in left for one in _runs(experiment, values, length, seeds)]))
        ended = [[next(played) for _ in seeds] for _ in left]
        metric = goal.judge([record for runs in ended for history, _ in runs for record in history])
        trials = [
            _trial(values, length, runs, metric, target=experiment.target)
            for values, runs in zip(left, ended, strict=True)
        ]
        trials.sort(key=lambda trial: (trial.arrival, trial.metric.cost(trial.score)))
        left = [trial.values for trial in trials[:survivors]]
        dropped = trials[survivors:] + dropped
    return [trials[0], *dropped]


def _runs(experiment: Experiment, values: Values, rounds: int, seeds: Sequence[int]) -> list[Experiment]:
    """Return a candidate's runs, one for each seed."""
    metric, name = Goal.of(experiment).metric, f"{experiment.name}-tune"
    base = with_values(experiment, values).replace(name=name, rounds=rounds, stop_at_target=False)
    if metric is None or not metric.needs_optimum:  # which is the optimum of all training examples
        base = base.replace(data=experiment.data.replace(validation=VALIDATION))
    return [base.replace(seed=seed) for seed in seeds]


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


def read_own_values(folder: Path) -> Tuned:
    """Return what was found and written to the file of a folder, nothing if it is not there."""
    path = folder / TUNED_FILE
    try:
        tuned: Tuned = tomllib.loads(path.read_text(encoding="utf-8"))
        for values in (values for methods in tuned.values() for values in methods.values()):
            if not all(
                "." in key
                or (key in SHORT and isinstance(value, float | int))
                or (key in Experiment.model_fields and not isinstance(value, dict))
                for key, value in values.items()
            ):
                raise ValueError(f"{values} holds something that is not a number, or no key")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path} cannot be read: {error}; fix or remove it") from error
    return tuned


def write_tuned(folder: Path, name: str, method: str, values: Values) -> Path:
    """Add a method's values to the file in a folder, beside those of other keys that are there."""
    path, table = folder / TUNED_FILE, read_own_values(folder)
    found = {full_key(key) for key in values}
    known = table.setdefault(name, {}).get(method, {})
    table[name][method] = {key: value for key, value in known.items() if full_key(key) not in found} | values
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, tomli_w.dumps(dict(sorted(table.items()))))
    return path


def as_tuned(experiments: Sequence[Experiment], folder: Path, *, changes: Collection[str] = ()) -> list[Experiment]:
    """Return experiments with the values that were found for them; refuse those for which none were.

    changes: keys whose values were given, which stay.
    """
    found = read_own_values(folder)
    if missing := [one.method for one in experiments if one.method not in found.get(one.name, {})]:
        raise InputError(f"{folder / TUNED_FILE} has no values for {', '.join(missing)}; tune them first")
    return [
        with_values(
            one, {key: value for key, value in found[one.name][one.method].items() if full_key(key) not in changes}
        )
        for one in experiments
    ]
