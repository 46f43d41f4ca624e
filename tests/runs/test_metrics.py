"""Any metric can be the one that a run is judged by: the accuracy, a loss, a distance, or one of the user's."""

import json
import math
from dataclasses import replace

import pytest
import torch

import fedadmm
from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.core.metrics import ACCURACY, LOSS, metric_named
from fedadmm.report.runs import read_run
from fedadmm.report.table import comparison_rows
from fedadmm.runs.goal import Goal
from fedadmm.runs.records import Record
from fedadmm.runs.runner import run
from fedadmm.runs.tuning import grid, search


def regression_data():
    """Return training and test examples of y = x @ (1, 2, 3)."""
    inputs = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    targets = inputs @ torch.tensor([1.0, 2.0, 3.0])
    return (inputs[:40], targets[:40]), (inputs[40:], targets[40:])


def linear(input_shape, num_classes):
    """Return a linear model of one output."""
    return torch.nn.Sequential(torch.nn.Linear(input_shape[0], 1), torch.nn.Flatten(0))


def r2(outputs, targets):
    """Return the share of the variance that the outputs explain."""
    return 1 - ((outputs - targets) ** 2).mean() / targets.var(correction=0)


def regression(**changes) -> Experiment:
    """Return a regression over four clients, which has no accuracy."""
    here = "tests.runs.test_metrics" if __name__.startswith("tests") else __name__
    table = {
        "name": "regression",
        "rounds": 6,
        "participation": 1.0,
        "engine": "serial",
        "algorithm": {"name": "fedavg"},
        "model": {"name": f"{here}:linear", "loss": "mse_loss", "metrics": {"r2": f"{here}:r2"}},
        "data": {"name": f"{here}:regression_data", "num_clients": 4, "partition": "iid"},
        "local": {"epochs": 1, "learning_rate": 0.1, "batch_size": 5},
    }
    return Experiment(**table | changes)


def record(round: int, **numbers: float | None) -> Record:
    """Return a round's record with these numbers."""
    table = {"accuracy": None, "loss": None, **numbers}
    return Record(round, table.pop("accuracy"), table.pop("loss"), 1.0, (0,), (), 1, 1, 1, 1, 0.1, metrics=table)


def test_which_way_is_better_is_known_said_by_the_name_or_given():
    assert not metric_named("accuracy").lower_is_better
    assert metric_named("loss").lower_is_better
    assert metric_named("distance").lower_is_better
    assert metric_named("macro_f1").reached(0.9, 0.8)
    assert metric_named("val-RMSE").reached(0.1, 0.2)
    assert not metric_named("accuracy_client_worst_decile").lower_is_better
    assert metric_named("regret", "lower").best([3.0, 1.0, 2.0]) == 1.0
    for name, direction, sentence in (
        ("regret", None, 'metric="regret" does not say what is better; add direction'),
        ("accuracy_client_std", None, "does not say what is better"),
        ("f1_loss", None, "does not say what is better"),
        ("loss", "higher", 'direction="higher" is not that of the loss'),
        ("f1", "up", "direction='up' is unknown"),
    ):
        with pytest.raises(InputError, match=sentence):
            metric_named(name, direction)


def test_a_metric_that_nobody_defined_is_refused_and_a_target_is_held_against_its_metric():
    for changes, sentence in (
        ({"metric": "f1"}, "metric='f1' is unknown; the metrics are accuracy, loss, client_loss, distance, r2"),
        ({"direction": "lower"}, "has no metric"),
        ({"target": 1.5}, "target=1.5 is out of range for the accuracy"),
        ({"metric": "loss", "target": math.nan}, "target=nan is out of range for the loss; use a finite number"),
        ({"evaluate_every": 0}, "evaluate_every=0 is out of range"),
    ):
        with pytest.raises(InputError, match=sentence):
            regression(**changes)
    assert regression(metric="loss", target=7.5).target == 7.5
    assert regression(metric="r2", target=-1.0).target == -1.0


def test_what_judges_a_run_changes_no_round_and_so_not_its_name():
    plain = regression()
    judged = regression(metric="r2", direction="higher", target=0.9, stop_at_target=True, evaluate_every=5)
    assert judged.hash == plain.hash
    assert regression(metric="distance").hash != plain.hash  # as it has always been


def test_a_run_without_accuracy_is_judged_by_its_loss():
    told = [record(1, loss=3.0), record(2, loss=1.0)]
    goal = Goal(2, target=1.5, stop_at_target=True)
    assert (goal.judge(told), goal.arrival(told)) == (LOSS, 2)
    assert goal.judge([record(1, accuracy=0.5, loss=1.0)]) == ACCURACY


def test_patience_is_counted_in_rounds_and_ends_no_run_between_two_evaluations():
    told = [record(round, accuracy=0.5 if round % 10 == 0 else None) for round in range(1, 21)]
    assert not Goal(99, patience=5).has_ended(told[:19])  # nothing is known of the rounds after the tenth
    assert Goal(99, patience=5).has_ended(told)


@pytest.mark.parametrize(
    ("metric", "target", "better"), [("r2", 0.9, max), ("loss", 1.0, min), ("client_loss", 1.0, min), (None, 0.9, min)]
)
def test_a_run_stops_at_the_target_of_its_metric_and_its_folder_tells_it(tmp_path, metric, target, better):
    ended = run(regression(metric=metric, target=target, stop_at_target=True, rounds=60), out=tmp_path)
    key = metric or "loss"
    scores = [record.value(key) for record in ended.history]
    assert ended.status == "finished"
    assert 1 < len(scores) < 60
    reached = [score >= target if better is max else score <= target for score in scores]
    assert reached == [False] * (len(scores) - 1) + [True]
    told = read_run(ended.folder.path)
    assert (told.metric.name, told.arrival, told.status) == (key, len(scores), "finished")
    (row,) = comparison_rows([told])
    assert row["rounds"] == str(len(scores))
    assert row["best"] == f"{better(scores):.4g}"


def test_a_round_is_evaluated_every_so_often_and_the_last_in_any_case(tmp_path):
    whole = run(regression(rounds=7), out=tmp_path / "a")
    some = run(regression(rounds=7, evaluate_every=3), out=tmp_path / "b")
    assert [record.round for record in some.history if record.loss is not None] == [3, 6, 7]
    for all_told, told in zip(whole.history, some.history, strict=True):
        assert told.client_loss == all_told.client_loss  # to the bit: the rounds are the same
        assert told.loss in (None, all_told.loss)
    lines = [json.loads(line) for line in (some.folder.path / "rounds.jsonl").read_text().splitlines()]
    assert "r2" not in lines[0]
    assert lines[2]["r2"] == whole.history[2].metrics["r2"]
    told = read_run(some.folder.path)
    assert told.known_scores == [record.loss for record in some.history if record.loss is not None]
    first = next(record.round for record in some.history if record.loss is not None and record.loss <= 0.5)
    early = run(regression(rounds=7, evaluate_every=3, target=0.5, stop_at_target=True), out=tmp_path / "c")
    assert len(early.history) == first


def test_from_python_any_metric_judges_the_result():
    data = fedadmm.federate(fedadmm.make_dataset(*regression_data()), num_clients=4, partition="iid", seed=0)
    options = {"model": linear((3,), 0), "data": data, "rounds": 30, "participation": 1.0, "engine": "serial"}
    options |= {"loss": torch.nn.functional.mse_loss, "local": fedadmm.LocalTraining(learning_rate=0.1, batch_size=5)}
    result = fedadmm.simulate(
        fedadmm.FedAvg(), **options, metrics={"r2": r2}, metric="r2", target=0.9, stop_at_target=True, evaluate_every=2
    )
    assert result.metric.name == "r2"
    assert result.rounds_to_target == len(result.history) == max(result.scores) < 30
    assert [*result.scores] == [*range(2, len(result.history) + 1, 2)]
    assert result.evaluate_clients().mean == result.evaluate_clients("r2").mean
    losses = fedadmm.simulate(fedadmm.FedAvg(), **options | {"rounds": 1}).evaluate_clients()
    assert losses.worst_decile == losses.values.max()
    for changes, sentence in (
        ({"metric": "f1"}, "metric='f1' is unknown"),
        ({"metrics": {"clients": r2}}, "metrics has 'clients', which a record has for something else; give it another"),
        ({"metric": "accuracy"}, 'metric="accuracy" needs targets that are classes; use one of loss'),
        ({"evaluate_every": 0}, "evaluate_every=0 is out of range"),
        ({"target": 3.0}, "target=3.0 is out of range for the accuracy"),
    ):
        with pytest.raises(InputError, match=sentence):
            fedadmm.simulate(fedadmm.FedAvg(), **options, **changes)


def test_the_worst_clients_can_be_what_a_run_is_judged_by(tmp_path):
    data = regression().data.replace(client_test=0.3)
    ended = run(regression(data=data, metric="loss_client_worst_decile", target=0.5, stop_at_target=True), out=tmp_path)
    scores = [record.number("loss_client_worst_decile") for record in ended.history]
    (row,) = comparison_rows([replace(read_run(ended.folder.path), experiment=regression(metric="loss").to_table())])
    assert row["worst tenth of clients"] == f"{scores[-1]:.4g}"
    assert [score <= 0.5 for score in scores] == [False] * (len(scores) - 1) + [True]
    with pytest.raises(InputError, match="metric='loss_client_mean' is unknown"):
        regression(metric="loss_client_mean")


@pytest.mark.slow
@pytest.mark.parametrize("metric", [None, "loss", "r2"])
def test_tuning_picks_the_rate_that_is_best_by_the_metric(tmp_path, metric):
    """The largest rate that is stable learns most in a few rounds; 3 diverges, slowly enough to stay finite."""
    experiment = regression(metric=metric)

    def play(candidates):
        runs = [run(candidate, out=tmp_path) for candidate in candidates]
        return [(ended.history, ended.status == "diverged") for ended in runs]

    trials = search(experiment, grid(experiment, rates=(0.001, 0.1, 3.0)), rounds=4, seeds=[0], run_all=play)
    assert trials[0].values == {"learning_rate": 0.1}
    assert trials[0].metric.name == (metric or "loss")


def test_tuning_by_the_distance_holds_nothing_out():
    seen = []

    def play(candidates):
        seen.extend(candidate.data.validation for candidate in candidates)
        return [([record(1, distance=candidate.local.learning_rate)], False) for candidate in candidates]

    experiment = regression(metric="distance")
    trials = search(experiment, grid(experiment), rounds=2, seeds=[0], run_all=play)
    assert trials[0].values == {"learning_rate": 0.01}
    assert set(seen) == {None}
