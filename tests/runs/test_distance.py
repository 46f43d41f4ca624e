"""A run that is judged by its distance to the optimum: in its records, its target and what is told of it."""

import json

import pytest

from fedadmm import InputError
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import load_plan
from fedadmm.core.metrics import DISTANCE
from fedadmm.report.methods import methods_of
from fedadmm.report.page import write_page
from fedadmm.report.runs import Section, read_run
from fedadmm.report.table import comparison_rows
from fedadmm.runs.runner import run

SMALL = {
    "rounds": 40,
    "engine": "serial",
    "participation": 1.0,
    "data.num_clients": 4,
    "data.options.dimension": 3,
    "state.store": "memory",
    "target": 1e-3,
}

DIGITS = {"name": "digits", "num_clients": 10, "partition": "iid"}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    experiment = load_plan("quadratic").experiment("feddyn", changes=SMALL)
    return run(experiment, out=tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_rounds_to_any_distance_are_in_the_record(ended):
    lines = [json.loads(line) for line in (ended.folder.path / "rounds.jsonl").read_text().splitlines()]
    distances = [line["distance"] for line in lines]
    assert distances[-1] < 1e-6 < distances[0] < 1
    for target in (1e-3, 1e-6):
        first = next(line["round"] for line in lines if line["distance"] <= target)
        assert DISTANCE.arrival(ended.history, target) == first > 1
    assert DISTANCE.best(DISTANCE.scores(ended.history)) == min(distances)


def test_compare_and_report_tell_distances(ended, tmp_path):
    data = read_run(ended.folder.path)
    (row,) = comparison_rows([data])
    assert row["rounds"] == str(DISTANCE.arrival(ended.history, 1e-3))
    assert row["best"] == f"{DISTANCE.best(DISTANCE.scores(ended.history)):.1e}"
    assert methods_of([data])[0].metric.title == "distance to the optimum"
    page = write_page([Section("quadratics", [data], "")], tmp_path / "page.html", title="x").read_text()
    assert "until the distance to the optimum reached 0.001" in page
    assert "final distance" in page


@pytest.mark.slow
def test_a_run_stops_at_its_distance(tmp_path, ended):
    stopping = ended.experiment.replace(stop_at_target=True)
    history = run(stopping, out=tmp_path).history
    assert len(history) == DISTANCE.arrival(ended.history, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["logistic_regression", "softmax_regression", "linear"])
def test_regressions_on_a_dataset_have_a_distance(tmp_path, model):
    loss = "least_squares" if model == "linear" else "cross_entropy"
    changes = {
        "name": model,
        "rounds": 2,
        "metric": "distance",
        "engine": "serial",
        "model": {"name": model, "loss": loss, "l2": 0.1},
        "data.float_type": "float64",
        "local": {"epochs": 2, "batch_size": "full", "learning_rate": 0.02},
    }
    if model == "logistic_regression":
        changes["data.positive"] = [1, 3, 5, 7, 9]
    experiment = load_plan("digits").experiment("feddyn", changes=changes)
    records = run(experiment, out=tmp_path).history
    assert 0 < records[1].metrics["distance"] < records[0].metrics["distance"] < 1
    assert records[1].accuracy is not None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"target": 2.0},
            "target=2.0 is out of range for the distance; use a number above 0 and up to 1, such as 1e-6",
        ),
        ({"model.l2": -1.0}, "l2=-1.0 is out of range"),
        ({"model": {"name": "mlp"}, "data": DIGITS}, "outputs are not linear in its parameters"),
        ({"data.options.size": 3}, "unknown key 'size'; the keys are dimension"),
        ({"data.positive": [1]}, 'data "quadratic" is taken as it is; leave out positive'),
        ({"data.partition": "iid"}, 'give num_clients, and partition = "natural"'),
        ({"data": DIGITS | {"options": {"a": 1}}}, 'data "digits" takes no options'),
        ({"metric": "loss"}, 'metric="loss" needs test examples'),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, changes, sentence):
    base = {key: value for key, value in SMALL.items() if key.partition(".")[0] not in changes}
    with pytest.raises(InputError, match=sentence):
        run(load_plan("quadratic").experiment(changes=base | changes), out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_keys_that_are_left_out_do_not_rename_a_run():
    plain = Experiment()
    assert plain.hash == plain.replace(metric=None).hash != plain.replace(metric="distance").hash
