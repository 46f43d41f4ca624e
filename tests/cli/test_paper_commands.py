"""The commands over the paper's presets: what they run, tell, refuse and leave alone."""

import json

import pytest
from typer.testing import CliRunner

from commands import fedadmm
from fedadmm.cli import app
from fedadmm.cli.arguments import columns_named
from fedadmm.cli.list import _hours_text
from fedadmm.cli.tune import _of_paper as tuned_in_paper
from fedadmm.config.plans import preset_descriptions
from fedadmm.core.errors import InputError
from fedadmm.data.sources import MNIST
from fedadmm.runs.tuning import write_tuned
from fedadmm.studies import costs
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import as_released


@pytest.mark.slow
def test_reproduce_works_until_its_time_is_up_and_status_is_right_about_it(tmp_path, published):
    which = ["table3", "--size", "small", "--columns", "mnist_100/iid", "--algorithms", "fedsgd", "--seeds", 1]
    begun = fedadmm("reproduce", *which, "--budget", "10s", "--data-dir", published(*MNIST.files), cwd=tmp_path)
    assert begun.returncode == 0, begun.stderr
    files = list(tmp_path.glob("r*/*/rounds.jsonl"))  # in runs, or in results on a machine that is fast enough
    (rounds,) = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    done = int(files[0].parent.parent.name == "results")
    assert f"{done} of 1 runs are done, {done} of them now" in begun.stdout
    assert ("the same command goes on from here" in begun.stdout) != bool(done)
    told = fedadmm("reproduce", *which, "--status", cwd=tmp_path)
    row = next(line for line in told.stdout.splitlines() if "mnist_100/iid" in line).split("│")
    assert [cell.strip() for cell in row[3:5]] == ["1", str(done)]
    assert float(row[5]) == pytest.approx(sum(r["seconds"] for r in rounds) / 3600, abs=0.01)
    if done:
        assert float(row[6]) == 0


@pytest.mark.slow
def test_list_shows_every_table_and_figure_with_runs_and_hours_once_they_are_timed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(costs, "_probe", lambda experiment: 1e-3)  # seconds; to time its networks takes longer
    rows = []
    for _ in range(2):
        listed = fedadmm("list", cwd=tmp_path)
        assert listed.returncode == 0, listed.stderr
        rows.append(next(line for line in listed.stdout.splitlines() if " table3 " in line).split("│"))
        timed = CliRunner().invoke(app, ["reproduce", "table3", "--status"])
        assert timed.exit_code == 0, timed.output
    unknown, row = rows
    assert [cell.strip() for cell in unknown[2:6]] == [
        "480",
        "?",
        "72",
        "?",
    ]  # 8 or 6 columns, 12 methods, 5 seeds or 1
    assert row[2].strip() == "480"
    assert float(row[3]) > 100
    assert all(text in listed.stdout for text in preset_descriptions().values())
    assert "with --size small" in listed.stdout
    race = next(line for line in listed.stdout.splitlines() if line.startswith("│ family ")).split("│")
    assert race[2].strip().startswith("≤")  # of its runs it needs a few


@pytest.mark.slow
def test_the_status_of_all_presets_has_a_row_for_each_that_is_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(costs, "_probe", lambda experiment: 1e-6)  # seconds; to time all networks takes longer
    shown = CliRunner().invoke(app, ["reproduce", "--status"])
    assert shown.exit_code == 0, shown.output
    rows = [line.split("│")[1].strip() for line in shown.stdout.splitlines() if line.startswith("│")]
    assert rows == [name for name, study in PAPER.items() if study.table is None]


@pytest.mark.parametrize(("hours", "text"), [(0.0, "0.0"), (0.001, "<0.1"), (0.1, "0.1"), (598.4, "598.4")])
def test_what_takes_minutes_is_not_said_to_take_no_hours(hours, text):
    assert _hours_text(hours) == text


def test_a_narrow_terminal_cuts_no_name(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["reproduce", "table_messages"]).stdout
    assert "fedadmm_participation" in shown
    assert "…" not in shown
    assert "Unprinted table" in shown


def test_results_are_named_only_if_there_are_some(tmp_path, monkeypatch):
    monkeypatch.setattr("fedadmm.cli.reproduce.play", lambda jobs, **options: [])
    places = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    shown = CliRunner().invoke(app, ["reproduce", "figure9", "--size", "small", *places]).stdout
    assert "0 of 8 runs are done, 0 of them now; the same command goes on from here" in shown


def test_values_that_were_tuned_here_are_told_and_so_is_a_report_that_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setattr("fedadmm.cli.reproduce.play", lambda jobs, **options: [])
    folders = ["--out", str(tmp_path), "--results", str(tmp_path / "results"), "--report", str(tmp_path / "r")]
    which = ["reproduce", "figure9", "--size", "small", "--columns", "mnist_100/iid", *folders]
    before = " ".join(CliRunner().invoke(app, which).stdout.split())
    assert "tuned.toml" not in before
    assert "There is no report: it is made of finished runs." in before
    write_tuned(tmp_path, "mnist-mlp-100-iid-E5-B200", "fedadmm", {"learning_rate": 0.25})
    after = " ".join(CliRunner().invoke(app, which).stdout.split())
    assert f"4 runs have values of {tmp_path}/tuned.toml" in after.replace("/ ", "/")


def test_the_released_form_is_tuned_under_its_own_name():
    tuned = tuned_in_paper("table3", "fedavg", columns="mnist_100/iid", size="small", released=True)
    (cell,) = (
        cell
        for cell in as_released(PAPER["table3"].runs("small"))
        if (cell.column, cell.experiment.label) == ("mnist_100/iid", "fedavg")
    )
    assert cell.tuned_as is not None
    assert [run.name for run in tuned] == [cell.tuned_as.name]


# The signal that ends the time may come while a file is being opened, which Python then closes with a warning.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tuning_stops_when_its_time_is_up_and_goes_on_with_the_same_command(tmp_path):
    tune = ["tune", "digits", "--algorithms", "fedavg", "--rates", "0.1,0.1,0.2", "--rounds", "4"]
    tune += ["--set", "engine=serial", "--out", str(tmp_path)]
    stopped = CliRunner().invoke(app, [*tune, "--budget", "0.001s"])
    assert stopped.exit_code == 0
    assert "The time is up; the same command goes on from here" in stopped.stdout
    assert not (tmp_path / "tuned.toml").exists()
    done = CliRunner().invoke(app, tune)
    assert done.exit_code == 0
    assert done.stdout.count("learning_rate 0.1 ") == 1
    assert (tmp_path / "tuned.toml").exists()


@pytest.mark.parametrize("text", ["x = 3", "a = [", "[digits]\nfedavg = 3", '[digits.fedavg]\nrho = "x"'])
@pytest.mark.parametrize("command", ["reproduce", "tune"])
def test_a_damaged_file_of_tuned_values_is_one_sentence_before_anything_is_run(tmp_path, text, command):
    (tmp_path / "tuned.toml").write_text(text)
    failed = CliRunner().invoke(app, [command, "figure9", "--size", "small", "--out", str(tmp_path)])
    assert isinstance(failed.exception, InputError)
    assert f"{tmp_path}/tuned.toml cannot be read" in str(failed.exception)


def test_results_cannot_go_into_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    failed = CliRunner().invoke(app, ["reproduce", "figure9", "--results", str(tmp_path / "file")])
    assert f"{tmp_path}/file is a file, not a folder; give another" in str(failed.exception)


def test_columns_are_named_with_blanks_between_them_and_none_holds_a_comma():
    columns = [cell.column for preset in PAPER.values() for cell in preset.runs("small")]
    assert not [column for column in columns if "," in column]
    assert columns_named("mnist_100/iid, mnist_100/noniid") == ["mnist_100/iid", "mnist_100/noniid"]


def test_the_defaults_are_in_the_help():
    shown = " ".join(CliRunner().invoke(app, ["reproduce", "--help"]).stdout.replace("│", " ").split())
    assert "Number of seeds. [default: (the paper's five; fewer when small)]" in shown
