"""`fedadmm compare`: seeds, and a page for each comparison beside one of all runs."""

import pytest
from typer.testing import CliRunner

from fedadmm import InputError
from fedadmm.api.progress import Bar
from fedadmm.cli import app
from fedadmm.runs.goal import Goal
from fedadmm.runs.records import Record

TINY = """name = "tiny"
rounds = 2
engine = "serial"
metric = "loss"
[model]
name = "softmax_regression"
[data]
name = "digits"
num_clients = 10
partition = "iid"
[local]
epochs = 1
"""


@pytest.mark.slow
def test_each_comparison_has_a_page_of_its_own_and_all_runs_are_on_another(tmp_path, monkeypatch):
    (tmp_path / "tiny.toml").write_text(TINY)
    monkeypatch.chdir(tmp_path)

    def compare(*arguments):
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["compare", "tiny.toml", "--algorithms", *arguments])

    done = compare("fedavg,fedprox", "--seeds", "3")
    assert done.exit_code == 0, done.output
    assert " ± " in done.stdout  # means over three seeds
    assert "3 seeds: final loss" in done.stdout
    assert "paired t-test p" in done.stdout
    assert compare("fedsgd").exit_code == 0
    pages = {path.name.rpartition("-")[0]: path.read_text() for path in tmp_path.glob("runs/tiny-*.html")}
    assert sorted(pages) == ["tiny-fedavg-fedprox", "tiny-fedsgd"]
    assert "paired t-test" in pages["tiny-fedavg-fedprox"]
    assert "fedprox" not in pages["tiny-fedsgd"]
    whole = (tmp_path / "runs/report.html").read_text()
    assert all(f"{method}-" in whole for method in ("tiny-fedavg", "tiny-fedprox", "tiny-fedsgd"))
    assert isinstance(compare("fedavg", "--seeds", "0").exception, InputError)


def test_the_bar_of_a_run_that_goes_on_has_the_last_score_that_is_there():
    def record(round, accuracy):
        return Record(round, accuracy, 1.0, 1.0, (0,), (), 1, 1, 1, 1, 0.1)

    bar = Bar(Goal(rounds=3, target=0.9), "fedavg")
    bar.started([record(1, 0.5), record(2, 0.75), record(3, None)])
    bar.ended()
    (task,) = bar._progress.tasks
    assert (task.completed, task.fields["score"]) == (3, "accuracy 0.750 of 0.9")
    shorter = Bar(Goal(rounds=1), "fedavg")  # than what is there: the score is that of its last round
    shorter.started([record(1, 0.5), record(2, 0.75)])
    shorter.ended()
    assert [(task.completed, task.fields["score"]) for task in shorter._progress.tasks] == [(1, "accuracy 0.500")]
