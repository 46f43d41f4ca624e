"""Successive halving: the same rounds for every method, the best candidate wins, divergence is a result."""

import math
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from fedadmm.algorithms import FedAvg, FedDyn, FedProx
from fedadmm.api.tune import tuned
from fedadmm.config.experiment import Experiment
from fedadmm.core.metrics import ACCURACY
from fedadmm.runs.records import Record
from fedadmm.runs.tuning import (
    Trial,
    as_tuned,
    at_the_edge,
    grid,
    read_own_values,
    rungs,
    search,
    with_values,
    write_tuned,
)
from fedadmm.studies.paper import PAPER
from fedadmm.training.local import LocalTraining


def record(round: int, accuracy: float | None) -> Record:
    """Return a round's record with this accuracy."""
    return Record(round, accuracy, 1.0, 1.0, (0,), (), 1, 1, 1, 1, 0.1)


class Runs:
    """Runs whose accuracy after t rounds is given by a function of the experiment, and what they cost."""

    def __init__(self, accuracy: Any) -> None:
        self.accuracy, self.trained = accuracy, {}

    def __call__(self, experiments: Sequence[Experiment]) -> list[tuple[list[Record], bool]]:
        return [self.one(experiment) for experiment in experiments]

    def one(self, experiment: Experiment) -> tuple[list[Record], bool]:
        """Return a run's history, and whether it diverged."""
        self.trained[experiment.hash] = max(self.trained.get(experiment.hash, 0), experiment.rounds)
        curve = [self.accuracy(experiment, t) for t in range(1, experiment.rounds + 1)]
        return [record(t, value) for t, value in enumerate(curve, 1)], curve[-1] is None


@pytest.mark.parametrize("num_candidates", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize("budget", [60, 120, 300])
def test_stages_halve_the_candidates_double_the_rounds_and_keep_the_budget(num_candidates, budget):
    stages = rungs(num_candidates, budget=budget)
    assert stages[0][0] == num_candidates
    lengths = [0, *(length for _, length in stages)]
    assert lengths == sorted(lengths)
    cost = sum(n * (b - a) for (n, b), a in zip(stages, lengths, strict=False))
    assert 0.8 * budget <= cost <= budget
    for (many, short), (few, long) in pairwise(stages):
        assert few == math.ceil(many / 2)
        assert 2 * short <= long <= 2 * short + 1


def test_values_that_are_tables_have_no_edge_and_a_key_of_no_table_is_read_again(tmp_path):
    schedules = [{"schedule": "step", "before": 0.1, "after": rate, "at_round": 2} for rate in (0.01, 0.02)]
    trials = [Trial({"local.learning_rate": table}, 2, math.inf, 0.5, ACCURACY, 0) for table in schedules]
    assert at_the_edge(trials) == []
    write_tuned(tmp_path, "digits", "fedavg", {"participation": 1.0, "local.epochs": [1, 2]})
    assert read_own_values(tmp_path)["digits"]["fedavg"] == {"participation": 1.0, "local.epochs": [1, 2]}


def test_a_second_search_keeps_what_the_first_one_found(tmp_path):
    write_tuned(tmp_path, "run", "feddyn", {"learning_rate": 0.4})
    write_tuned(tmp_path, "run", "feddyn", {"algorithm.rho": 0.02})
    write_tuned(tmp_path, "run", "feddyn", {"local.learning_rate": 0.2})
    assert read_own_values(tmp_path)["run"]["feddyn"] == {"algorithm.rho": 0.02, "local.learning_rate": 0.2}
    seen = []

    def run_all(planned):
        seen.extend(one for one, _ in planned)
        return [SimpleNamespace(history=[record(t, 0.5) for t in range(1, one.rounds + 1)]) for one, _ in planned]

    methods = [Experiment(algorithm=FedDyn()), Experiment(algorithm=FedAvg())]
    write_tuned(tmp_path, "run", "fedavg", {"learning_rate": 0.3})
    found = [*tuned(methods, search={"algorithm.rho": [0.1, 0.5]}, rounds=4, seeds=1, out=tmp_path, run_all=run_all)]
    assert {one.local.learning_rate for one in seen if one.method == "feddyn"} == {0.2}
    assert found[0][0].local.learning_rate == 0.2
    after = read_own_values(tmp_path)["run"]
    assert after["feddyn"]["algorithm.rho"] in (0.1, 0.5)
    assert after["fedavg"] == {"learning_rate": 0.3}  # it has no rho


def test_what_was_changed_by_hand_is_not_changed_back(tmp_path):
    write_tuned(tmp_path, "run", "fedavg", {"learning_rate": 0.5, "local.batch_size": 20})
    experiment = Experiment(algorithm=FedAvg()).replace(local=LocalTraining(learning_rate=0.05))
    (tuned,) = as_tuned([experiment], tmp_path, changes={"local.learning_rate"})
    assert (tuned.local.learning_rate, tuned.local.batch_size) == (0.05, 20)
    (tuned,) = as_tuned([experiment], tmp_path)
    assert tuned.local.learning_rate == 0.5


def test_the_winner_is_the_candidate_that_arrives_first():
    def accuracy(experiment: Experiment, t: int) -> float:
        return min(0.95, experiment.local.learning_rate * t / 10)

    experiment = Experiment(algorithm=FedAvg(), target=0.9)
    trials = search(experiment, grid(experiment), rounds=40, seeds=[0], run_all=Runs(accuracy))
    assert trials[0].values == {"learning_rate": 0.5}
    assert trials[0].arrival == 18  # 0.5 * 18 / 10
    assert trials[-1].rounds == 20  # the two worst were dropped half-way
    assert math.isinf(trials[-1].arrival)


def test_a_run_that_diverges_comes_last_and_ends_nothing():
    def accuracy(experiment: Experiment, t: int) -> float | None:
        return None if experiment.local.learning_rate > 0.15 else 0.5 + experiment.local.learning_rate

    experiment = Experiment(algorithm=FedAvg(), target=0.9)
    trials = search(experiment, grid(experiment), rounds=10, seeds=[0, 1], run_all=Runs(accuracy))
    assert [trial.values["learning_rate"] for trial in trials[:2]] == [0.1, 0.01]
    assert [trial.score for trial in trials[2:]] == [0.0, 0.0]


def test_every_method_gets_the_same_rounds_and_fedprox_searches_rho_too():
    spent = []
    for algorithm in (FedAvg(), FedProx()):
        runs = Runs(lambda experiment, t: 0.5)
        experiment = Experiment(algorithm=algorithm, target=0.9)
        candidates = grid(experiment)
        search(experiment, candidates, rounds=40, seeds=[0], run_all=runs)
        assert len(runs.trained) == len(candidates)
        spent.append(sum(runs.trained.values()))
    assert len(grid(Experiment(algorithm=FedProx()))) == 16
    assert spent[0] == 120  # four for 20 rounds, and two of them for 20 more
    assert 0.85 * spent[0] <= spent[1] <= spent[0]


def test_candidates_are_judged_on_held_out_training_examples():
    seen = []

    def accuracy(experiment: Experiment, t: int) -> float:
        seen.append(experiment.data.validation)
        return 0.5

    experiment = Experiment(algorithm=FedAvg(), target=0.9)
    search(experiment, grid(experiment), rounds=4, seeds=[0], run_all=Runs(accuracy))
    assert set(seen) == {0.2}


def test_a_row_that_is_named_after_its_rho_keeps_it():
    cells = [cell for cell in PAPER["table5"].runs("small") if "fedprox" in (cell.experiment.label or "")]
    assert len(cells) == 12
    for cell in cells:
        values = grid(cell.tuned_as)
        assert [set(candidate) for candidate in values] == [{"learning_rate"}] * 4
        assert cell.experiment.label == f"fedprox_rho{with_values(cell.experiment, values[0]).algorithm.rho:g}"
