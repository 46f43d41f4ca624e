import json
import tomllib
from pathlib import Path

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from commands import fedadmm
from fedadmm import cli
from fedadmm.cli import COMMANDS, load_command
from fedadmm.config.plans import load_plan
from fedadmm.runs.runner import run

QUICK = ["--set", "rounds=3", "--set", "model.name=softmax_regression", "--set", "local.epochs=1"]


def read_rounds(folder):
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.mark.slow
def test_the_same_command_twice_gives_the_same_bytes(tmp_path):
    first, second = (fedadmm("run", "digits", *QUICK, "--out", tmp_path / d, cwd=tmp_path) for d in "ab")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    (a,), (b,) = (list((tmp_path / d).iterdir()) for d in "ab")
    assert a.name == b.name
    assert read_rounds(a) == read_rounds(b)
    assert len(read_rounds(a)) == 3
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
    assert (a / "experiment.toml").read_bytes() == (b / "experiment.toml").read_bytes()


@pytest.mark.slow
def test_a_comparison_prints_a_table_and_draws_a_figure(tmp_path):
    done = fedadmm("compare", "digits", "--algorithms", "fedavg,feddyn", *QUICK, "--out", "c", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fedavg" in done.stdout
    assert "3+" in done.stdout  # nobody reaches 0.9 in three rounds
    (picture,), (table,) = (list((tmp_path / "c").glob(f"digits-fedavg-feddyn-*.{kind}")) for kind in ("png", "md"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert table.read_text().count("\n") == 6  # with what "3+" means below
    page = table.with_suffix(".html").read_text()
    assert "report-data" in page
    assert "<h1>digits</h1>" in page
    assert ">shards, 3 rounds</h2>" in page
    assert f"Page:   c/{table.stem}.html" in done.stdout
    assert "Report: c/report.html" in done.stdout
    listed = fedadmm("list", "--out", "c", cwd=tmp_path)
    assert "digits-feddyn" in listed.stdout
    (folder,) = (tmp_path / "c").glob("digits-fedavg-*/")
    shown = fedadmm("show", folder, cwd=tmp_path)
    assert 'name = "fedavg"' in shown.stdout
    assert "3/3" in listed.stdout


@pytest.mark.slow
def test_tune_puts_the_best_rate_first_writes_it_down_and_never_sees_the_test_examples(tmp_path):
    done = fedadmm(
        "tune",
        "digits",
        "--algorithms",
        "fedavg",
        "--rates",
        "0.1,1e38",
        "--seeds",
        1,
        *QUICK,
        "--out",
        "t",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Sorted by rounds trained, then by rounds to target, then by accuracy." in done.stdout
    assert "refused the update of client" not in done.stderr
    lines = [line for line in done.stdout.splitlines() if "│" in line and "learning_rate" in line]
    assert "learning_rate 0.1 " in lines[0]
    assert "learning_rate 1e+38 " in lines[1]
    refused = [line.split("│")[5].strip() for line in lines]
    records = [r for f in (tmp_path / "t/tuning").iterdir() for r in read_rounds(f)]
    assert refused == ["0", str(sum(len(record["refused"]) for record in records))]
    assert int(refused[1]) >= 10  # at least all clients of the round in which it diverged
    assert tomllib.loads((tmp_path / "t/tuned.toml").read_text()) == {"digits": {"fedavg": {"learning_rate": 0.1}}}
    candidates = [f.read_text() for f in (tmp_path / "t").rglob("experiment.toml")]
    assert ["validation = 0.2" in text for text in candidates] == [True, True]
    assert "none in t" in fedadmm("list", "--out", "t", cwd=tmp_path).stdout
    assert "there is no run in t" in fedadmm("report", "t", cwd=tmp_path).stderr
    assert fedadmm("report", "t/tuning", cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_a_run_that_diverges_says_so_and_exits_with_1(tmp_path):
    done = fedadmm("run", "digits", *QUICK, "--set", "local.learning_rate=1e38", "--out", "d", cwd=tmp_path)
    assert done.returncode == 1
    assert "Diverged in round" in done.stdout
    assert "lower local.learning_rate" in done.stdout
    assert "refused the update of client" in done.stderr


@pytest.mark.slow
def test_a_model_file_holds_the_trained_weights(tmp_path):
    changes = {"rounds": 2, "model.name": "softmax_regression", "local.epochs": 1}
    ended = run(load_plan("digits").experiment("fedavg", changes=changes), out=tmp_path)
    tensors = load_file(ended.folder.model)
    assert sorted(tensors) == ["1.bias", "1.weight"]
    assert tensors["1.weight"].shape == (10, 64)


@pytest.mark.slow
def test_a_run_stops_at_its_target_only_when_told(tmp_path):
    changes = {"rounds": 4, "target": 0.01, "model.name": "softmax_regression", "local.epochs": 1}
    plan = load_plan("digits")
    assert len(run(plan.experiment("fedavg", changes=changes), out=tmp_path / "a").history) == 4
    stopping = plan.experiment("fedavg", changes=changes | {"stop_at_target": True})
    ended = run(stopping, out=tmp_path / "b")
    assert (len(ended.history), ended.status) == (1, "finished")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_in_the_help_is_the_first_of_its_own(name):
    help_text = load_command(name).help
    assert help_text is not None
    assert help_text.splitlines()[0] == COMMANDS[name]


def test_every_file_of_a_command_is_a_command():
    shared = {"__init__", "arguments", "console", "federation_server", "options", "progress"}
    assert {path.stem for path in Path(cli.__file__).parent.glob("*.py")} - shared == set(COMMANDS)


def test_the_help_names_every_command_with_its_line(monkeypatch):
    monkeypatch.setenv("TERMINAL_WIDTH", "160")
    shown = CliRunner(env={"COLUMNS": "160"}).invoke(cli.app, ["--help"]).output
    assert [name for name, line in COMMANDS.items() if f"{name} " in shown and line in shown] == list(COMMANDS)


def test_a_command_that_is_misspelt_gets_a_hint():
    result = CliRunner().invoke(cli.app, ["reprot"])
    assert result.exit_code == 2
    assert "Did you mean 'report'" in result.output
