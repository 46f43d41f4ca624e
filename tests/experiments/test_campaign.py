"""Campaigns: what is missing is run, the cheapest first, in time, and only the small files are kept."""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands import fedadmm
from fedadmm.algorithms import FedAvg, FedDyn
from fedadmm.cli import app
from fedadmm.cli_options import columns_named
from fedadmm.cli_status import _hours_text
from fedadmm.cli_tune import _of_paper as tuned_in_paper
from fedadmm.core.errors import InputError
from fedadmm.data.sources import MNIST
from fedadmm.experiments.campaign import Budget, Job, OutOfTimeError, Places, jobs_of, play
from fedadmm.experiments.experiment import DataSettings, Experiment, ModelSettings
from fedadmm.experiments.files import preset_descriptions
from fedadmm.experiments.pace import Pace, gradient_evaluations
from fedadmm.experiments.paper import PAPER
from fedadmm.experiments.paper.preset import Cell, Preset
from fedadmm.experiments.paper.released import as_released
from fedadmm.experiments.paper.tuned import write_tuned
from fedadmm.experiments.records import Record
from fedadmm.experiments.runner import run as run_experiment
from fedadmm.learning.local import Local


def experiment(label: str, epochs: int = 1) -> Experiment:
    """Return two rounds of softmax regression on digits."""
    return Experiment(
        name="tiny",
        label=label,
        rounds=2,
        algorithm=FedAvg() if label == "fedavg" else FedDyn(),
        model=ModelSettings(name="softmax_regression"),
        data=DataSettings(name="digits", num_clients=10, partition="iid"),
        local=Local(epochs=epochs),
        engine="serial",
        participation=0.2,
    )


PRESET = Preset(
    "tiny",
    "Two methods",
    lambda size: [Cell("one", experiment("feddyn", 5)), Cell("one", experiment("fedavg"))],
)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Return folders for runs and results."""
    return Places(tmp_path / "runs", tmp_path / "results")


@pytest.fixture
def pace(tmp_path: Path) -> Pace:
    """Return a pace that learns from nothing but this test."""
    return Pace(cache=tmp_path / "pace.json")


def runner(places: Places) -> Callable[[Experiment, Callable[[Record], bool]], bool]:
    """Return what runs an experiment for real."""

    def run(experiment: Experiment, proceed: Callable[[Record], bool]) -> bool:
        return run_experiment(experiment, out=places.runs, on_round=proceed).status != "interrupted"

    return run


def jobs(places: Places, **options: object) -> list[Job]:
    """Return the jobs of the preset, one seed each."""
    return jobs_of(PRESET, places=places, found={}, num_seeds=1, **options)


def test_the_cheapest_comes_first_and_only_small_files_are_kept(places, pace):
    done = list(play(jobs(places), places=places, pace=pace, budget=Budget(None), run=runner(places)))
    assert [job.experiment.label for job in done] == ["fedavg", "feddyn"]
    assert all(job.is_done for job in jobs(places))
    kept = sorted(file.name for file in places.results.rglob("*") if file.is_file())
    assert kept == ["experiment.toml", "experiment.toml", "rounds.jsonl", "rounds.jsonl"]
    assert not list(places.runs.iterdir())


def test_what_is_done_is_not_run_again(places, pace):
    list(play(jobs(places), places=places, pace=pace, budget=Budget(None), run=runner(places)))

    def never(experiment: Experiment, proceed: object) -> bool:
        raise AssertionError(experiment)

    assert not list(play(jobs(places), places=places, pace=pace, budget=Budget(None), run=never))


def test_a_campaign_that_was_stopped_goes_on_where_it_was(places, pace):
    calls = []

    def run(experiment: Experiment, proceed: Callable[[Record], bool]) -> bool:
        calls.append(experiment.label)
        return runner(places)(experiment, lambda record: False)  # stopped after its first round

    assert not list(play(jobs(places), places=places, pace=pace, budget=Budget(None), run=run))
    assert calls == ["fedavg"]
    partly = {job.experiment.label: len(job.records) for job in jobs(places)}
    assert partly == {"fedavg": 1, "feddyn": 0}
    done = list(play(jobs(places), places=places, pace=pace, budget=Budget(None), run=runner(places)))
    assert len(done) == 2
    rounds = (places.results / experiment("fedavg").folder_name / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in rounds] == [1, 2]


def test_a_run_that_was_stopped_before_its_publication_is_published(places, pace):
    run_experiment(experiment("fedavg"), out=places.runs)
    done = list(play(jobs(places), places=places, pace=pace, budget=Budget(0.0), run=runner(places)))
    assert [job.experiment.label for job in done] == ["fedavg"]
    assert (places.results / experiment("fedavg").folder_name / "rounds.jsonl").exists()
    assert not list(places.runs.iterdir())


def test_a_round_that_would_not_end_in_time_is_not_begun(places, pace):
    assert not list(play(jobs(places), places=places, pace=pace, budget=Budget(0.0), run=runner(places)))
    assert not places.runs.exists()


def test_pace_learns_from_runs_and_the_estimate_is_in_proportion(places, pace):
    one = experiment("fedavg")
    round = Record(1, 0.5, 1.0, 1.0, (0,), (), 1, 100, 1, 1, 2.0)  # 0.02 seconds a gradient
    pace.learn(one, [replace(round, seconds=200.0)] * 2)  # two rounds may have had a bad moment
    assert pace.seconds(one, rounds=10) < 100
    pace.learn(one, [round] * 3)
    assert gradient_evaluations(one) == pytest.approx(0.2 * 1437)
    assert pace.seconds(one, rounds=10) == pytest.approx(10 * 0.2 * 1437 * 0.02)
    assert pace.seconds(experiment("feddyn", 5), rounds=10) == pytest.approx(5 * pace.seconds(one, rounds=10))


def test_what_was_begun_comes_before_what_is_cheaper(places, pace):
    run_experiment(experiment("feddyn", 5), out=places.runs, on_round=lambda record: False)
    done = list(play(jobs(places), places=places, pace=pace, budget=Budget(None), run=runner(places)))
    assert [job.experiment.label for job in done] == ["feddyn", "fedavg"]


def test_a_round_that_outlasts_the_budget_is_cut_short_and_nothing_is_lost(places):
    before = signal.getsignal(signal.SIGALRM)
    began = time.monotonic()
    with pytest.raises(OutOfTimeError), Budget(2.0).enforced():
        run_experiment(experiment("fedavg"), out=places.runs, on_round=lambda record: time.sleep(60))
    assert time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert {job.experiment.label: len(job.records) for job in jobs(places)} == {"fedavg": 1, "feddyn": 0}
    assert run_experiment(experiment("fedavg"), out=places.runs).status == "finished"


def test_a_pace_is_remembered(tmp_path, pace):
    first = pace.seconds(experiment("fedavg"), rounds=1)
    assert first > 0
    assert Pace(cache=tmp_path / "pace.json").seconds(experiment("fedavg"), rounds=1) == first


def test_a_column_that_is_not_there_is_named(places):
    with pytest.raises(Exception, match="no column 'two'; use one"):
        jobs(places, columns=["two"])


def test_each_seed_is_a_job(places):
    assert [job.experiment.seed for job in jobs_of(PRESET, places=places, found={}, num_seeds=3)][:3] == [
        0,
        1,
        2,
    ]


@pytest.mark.slow
def test_reproduce_works_until_its_time_is_up_and_status_is_right_about_it(tmp_path, published):
    which = [
        "table3",
        "--size",
        "small",
        "--columns",
        "mnist_100/iid",
        "--algorithms",
        "fedsgd",
        "--seeds",
        1,
    ]
    begun = fedadmm(
        "reproduce", *which, "--budget", "40s", "--data-dir", published(*MNIST.files), cwd=tmp_path
    )
    assert begun.returncode == 0, begun.stderr
    files = list(
        tmp_path.glob("r*/*/rounds.jsonl")
    )  # in runs, or in results on a machine that is fast enough
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
def test_list_shows_every_table_and_figure_with_runs_and_hours(tmp_path):
    listed = fedadmm("list", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    row = next(line for line in listed.stdout.splitlines() if " table3 " in line).split("│")
    assert row[2].strip() == "400"  # 8 columns, 10 methods, 5 seeds
    assert float(row[3]) > 100
    assert all(text in listed.stdout for text in preset_descriptions().values())
    assert "with --size small" in listed.stdout


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
    monkeypatch.setattr("fedadmm.cli_paper.play", lambda jobs, **options: [])
    places = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    shown = CliRunner().invoke(app, ["reproduce", "figure9", "--size", "small", *places]).stdout
    assert "0 of 8 runs are done, 0 of them now; the same command goes on from here" in shown


def test_values_that_were_tuned_here_are_told_and_so_is_a_report_that_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setattr("fedadmm.cli_paper.play", lambda jobs, **options: [])
    folders = [
        "--out",
        str(tmp_path),
        "--results",
        str(tmp_path / "results"),
        "--report",
        str(tmp_path / "r"),
    ]
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
        for cell in as_released(PAPER["table3"].cells("small"))
        if (cell.column, cell.experiment.label) == ("mnist_100/iid", "fedavg")
    )
    assert cell.tuned_as is not None
    assert [run.name for run in tuned] == [cell.tuned_as.name]


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


@pytest.mark.parametrize(
    ("name", "content"),
    [("rounds.jsonl", '{"round": 1}\n'), ("rounds.jsonl", "garbage\n"), ("experiment.toml", None)],
)
def test_a_result_that_cannot_be_read_is_made_again(places, pace, caplog, name, content):
    list(play(jobs(places), places=places, pace=pace, budget=Budget(None), run=runner(places)))
    damaged = places.results / experiment("fedavg").folder_name / name
    whole = damaged.read_bytes()
    if content is None:
        damaged.unlink()
    else:
        damaged.write_text(content)
    again = list(play(jobs(places), places=places, pace=pace, budget=Budget(None), run=runner(places)))
    assert [job.experiment.label for job in again] == ["fedavg"]
    assert "cannot be read" in caplog.text
    assert len(damaged.read_bytes().splitlines()) == len(whole.splitlines())


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
    assert f"{tmp_path}/file is a file and no folder; give another" in str(failed.exception)


def test_columns_are_named_with_blanks_between_them_and_none_holds_a_comma():
    columns = [cell.column for preset in PAPER.values() for cell in preset.cells("small")]
    assert not [column for column in columns if "," in column]
    assert columns_named("mnist_100/iid, mnist_100/noniid") == ["mnist_100/iid", "mnist_100/noniid"]


def test_the_defaults_are_in_the_help():
    shown = " ".join(CliRunner().invoke(app, ["reproduce", "--help"]).stdout.replace("│", " ").split())
    assert "Number of seeds. [default: (the paper's five; fewer when small)]" in shown
