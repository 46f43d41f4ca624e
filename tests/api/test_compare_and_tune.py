"""Comparing and tuning from Python, and the same from the command line: any key, one budget, values that are used."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import fedadmm
from fedadmm import FedADMM, FedAvg, InputError, LocalTraining, cli, compare, simulate, tune
from fedadmm.cli.arguments import search_of
from fedadmm.config.plans import load_plan
from fedadmm.report.runs import gather_runs
from fedadmm.runs.tuning import grid, with_values
from worlds import perceptron, some_data

CHANGES = {"rounds": 2, "model.name": "softmax_regression", "local.epochs": 1, "engine": "serial"}


def small(algorithm: Any, **options: Any) -> fedadmm.Result:
    """Return a run of three clients."""
    settings = {"local": LocalTraining(batch_size=6), "participation": 1.0, "engine": "serial"}
    return simulate(algorithm, model=perceptron, data=some_data([8, 10, 6]), rounds=2, **settings | options)


@pytest.mark.slow
def test_a_comparison_from_python_runs_methods_and_seeds_and_shows_them(tmp_path: Path) -> None:
    comparison = compare("digits", algorithms=["fedavg", "feddyn"], changes=CHANGES, seeds=2, out=tmp_path)
    assert [(one.experiment.method, one.experiment.seed) for one in comparison.results] == [
        ("fedavg", 0), ("feddyn", 0), ("fedavg", 1), ("feddyn", 1)
    ]  # fmt: skip
    assert len(gather_runs([tmp_path]).runs) == 4
    assert comparison["feddyn"] is comparison.results[1]
    assert {row["method"] for row in comparison.rows} == {"fedavg", "feddyn"}
    assert "feddyn" in repr(comparison)
    assert "paired t-test" in repr(comparison)
    assert "<table>" in comparison._repr_html_()
    assert isinstance(comparison.plot("loss"), Figure)
    table = comparison.to_pandas()
    assert len(table) == 8
    assert set(table.seed) == {0, 1}
    with pytest.raises(InputError, match="there is no method 'fedav' here; did you mean fedavg"):
        comparison["fedav"]


@pytest.mark.slow
def test_results_are_compared_without_being_run_again(tmp_path: Path) -> None:
    one, other = small(FedAvg()), small(FedAvg(), seed=1)
    comparison = compare({"mine": one, "theirs": other})
    assert [row["method"] for row in comparison.rows] in (["mine", "theirs"], ["theirs", "mine"])
    assert comparison["mine"].history is one.history
    picture, table, page = comparison.write(tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "| mine |" in table.read_text()
    assert "report-data" in page.read_text()
    other_data = simulate(FedAvg(), model=perceptron, data=some_data([8, 10, 7]), rounds=2, participation=1.0)
    assert len(compare([one, other_data]).rows) == 2  # one algorithm, and not one run: the data differ


def test_a_search_goes_over_all_combinations_of_the_keys_that_a_method_has() -> None:
    search = {"algorithm.rho": [0.01, 0.1], "local.momentum": [0.0, 0.9]}
    fedavg, fedadmm_run = (load_plan("digits").experiment(name) for name in ("fedavg", "fedadmm"))
    assert grid(fedavg, search) == [{"local.momentum": 0.0}, {"local.momentum": 0.9}]
    assert len(grid(fedadmm_run, search)) == 4
    changed = with_values(fedadmm_run, grid(fedadmm_run, search)[-1])
    assert (changed.algorithm.rho, changed.local.momentum) == (0.1, 0.9)
    assert changed.replace(algorithm=fedadmm_run.algorithm, local=fedadmm_run.local) == fedadmm_run


def test_values_are_read_as_a_file_would_have_them() -> None:
    given = ["algorithm.rho=0.01,0.1,0.1", "local.optimizer=sgd,adam", 'local.epochs=1,"1..5"', "local.clip=1"]
    assert search_of(given) == {
        "algorithm.rho": [0.01, 0.1],
        "local.optimizer": ["sgd", "adam"],
        "local.epochs": [1, "1..5"],
        "local.clip": [1],
    }
    assert search_of([]) is None
    with pytest.raises(InputError, match=r"cannot search 'algorithm.rho'; write key=values"):
        search_of(["algorithm.rho"])


@pytest.mark.slow
def test_what_tune_finds_is_written_down_and_compare_takes_it(tmp_path: Path) -> None:
    search = {"local.learning_rate": [1e-9, 0.5], "algorithm.rho": [0.01]}
    plan: dict[str, Any] = {"algorithms": ["fedavg", "fedadmm"], "changes": CHANGES, "out": tmp_path}
    found = tune("digits", search=search, **plan)
    assert found.best["fedavg"] == {"local.learning_rate": 0.5}  # the other one stays where it began
    assert found["fedadmm"].algorithm == FedADMM(rho=0.01)
    edge = "learning_rate 0.5 is the largest that was tried; try larger ones as well."
    assert repr(found).count(edge) == 2  # of each method; rho has one value, and so no edge
    assert "rho 0.01 is" not in repr(found)
    assert found._repr_html_().count(edge) == 2
    assert "<table>" in found._repr_html_()
    trained = [sum(trial.rounds for trial in trials) for trials in found.trials.values()]
    assert trained[0] == trained[1]  # the same budget for each method
    comparison = compare("digits", tuned=True, **plan)
    assert [one.experiment for one in comparison.results] == found.experiments
    by_command = CliRunner().invoke(
        cli.app,
        ["compare", "digits", "--algorithms", "fedavg,fedadmm", "--tuned", "--out", str(tmp_path)]
        + [part for key, value in CHANGES.items() for part in ("--set", f"{key}={value}")],
    )
    assert by_command.exit_code == 0, by_command.output
    assert len(gather_runs([tmp_path]).runs) == 2  # the same runs
    with pytest.raises(InputError, match=r"tuned.toml has no values for feddyn; tune them first"):
        compare("digits", tuned=True, **plan | {"algorithms": ["feddyn"]})


@pytest.mark.slow
def test_tune_judges_by_the_metric_that_is_asked_for(tmp_path: Path) -> None:
    search, changes = {"local.learning_rate": [0.5, 1e-9]}, CHANGES | {"metric": "loss", "target": 0.01}
    found = tune("digits", search=search, algorithms=["fedavg"], changes=changes, out=tmp_path)
    assert found.trials["fedavg"][0].metric.name == "loss"
    assert found.best["fedavg"] == {"local.learning_rate": 0.5}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: compare([]), "there is no method to compare; give experiments"),
        (lambda: compare("digits", seed=3), "compare has no argument 'seed'; did you mean seeds"),
        (lambda: compare([small(FedAvg())], changes={"rounds": 3}), "change the experiments themselves"),
        (lambda: compare("digits", seeds=0), "seeds=0 is out of range"),
        (lambda: tune([small(FedAvg())]), "a result cannot be tuned"),
        (lambda: tune("digits", algorithms=["fedavg"], search={"algorithm.rho": [1]}), "no method has the key"),
        (lambda: tune("digits", algorithms=["fedavg"], search={"local.lr": [1]}), "unknown key 'lr'"),
        (lambda: tune("digits", algorithms=["fedavg"], search={"local.momentum": 0.1}), "list those to try"),
        (lambda: tune("digits", algorithms=["fedavg"], rounds=1), "rounds=1 is out of range; use a whole"),
    ],
)
def test_a_mistake_is_a_sentence_and_leaves_nothing(
    call: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=sentence):
        call()
    assert not list(tmp_path.iterdir())


def test_the_order_of_changes_means_nothing() -> None:
    changes = {"algorithm.rho": 0.5, "algorithm.name": "fedadmm"}
    assert fedadmm.load_experiment("digits", changes=changes).algorithm == FedADMM(rho=0.5)
