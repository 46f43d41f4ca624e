"""Campaigns: what is missing is run, the cheapest first, in time, and only the small files are kept."""

import json
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedadmm.algorithms import FedAvg, FedDyn
from fedadmm.config.experiment import Experiment
from fedadmm.config.tables import DataSettings, ModelSettings
from fedadmm.runs.listeners import Callback, Listener, OutOfTimeError, TimeBudget
from fedadmm.runs.records import Record
from fedadmm.runs.runner import run as run_experiment
from fedadmm.studies.campaign import Job, NextRun, Places, PlayRuns, jobs_of, play
from fedadmm.studies.costs import CostEstimate, gradient_evaluations
from fedadmm.studies.paper.study import PaperRun, Study
from fedadmm.studies.ratios import Arrival, arrivals_file, keep_arrivals
from fedadmm.training.local import LocalTraining


def experiment(label: str, epochs: int = 1) -> Experiment:
    """Return two rounds of softmax regression on digits."""
    return Experiment(
        name="tiny",
        label=label,
        rounds=2,
        algorithm=FedAvg() if label == "fedavg" else FedDyn(),
        model=ModelSettings(name="softmax_regression"),
        data=DataSettings(name="digits", num_clients=10, partition="iid"),
        local=LocalTraining(epochs=epochs),
        engine="serial",
        participation=0.2,
    )


STUDY = Study(
    "tiny",
    "Two methods",
    lambda size: [PaperRun("one", experiment("feddyn", 5)), PaperRun("one", experiment("fedavg"))],
)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Return folders for runs and results."""
    return Places(tmp_path / "runs", tmp_path / "results")


@pytest.fixture
def costs(tmp_path: Path) -> CostEstimate:
    """Return an estimate that learns from nothing but this test."""
    return CostEstimate(cache=tmp_path / "costs.json")


def runner(places: Places, *listeners: Listener) -> PlayRuns:
    """Return what runs experiments for real, one after the other."""

    def run(waiting: Sequence[Experiment], next_run: NextRun) -> Iterator[tuple[Experiment, bool]]:
        while (one := next_run(1)) is not None:
            yield one, run_experiment(one, out=places.runs, listeners=listeners).status != "stopped"

    return run


def jobs(places: Places, **options: object) -> list[Job]:
    """Return the jobs of the preset, one seed each."""
    return jobs_of(STUDY, places=places, found={}, num_seeds=1, **options)


@pytest.mark.slow
def test_the_cheapest_comes_first_and_only_small_files_are_kept(places, costs):
    done = list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(None), run=runner(places)))
    assert [job.experiment.label for job in done] == ["fedavg", "feddyn"]
    assert all(job.is_done for job in jobs(places))
    kept = sorted(file.name for file in places.results.rglob("*") if file.is_file())
    assert kept == ["experiment.toml", "experiment.toml", "rounds.jsonl", "rounds.jsonl"]
    assert not list(places.runs.iterdir())


def test_what_is_done_is_not_run_again(places, costs):
    list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(None), run=runner(places)))

    def never(waiting: Sequence[Experiment], next_run: NextRun) -> Iterator[tuple[Experiment, bool]]:
        raise AssertionError(waiting)

    assert not list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(None), run=never))


def test_a_run_of_which_only_the_arrival_is_kept_is_not_run_again(places):
    study = replace(STUDY, chosen=("fedavg",))
    places.results.mkdir()
    row = Arrival("one", "fedavg", seed=0, arrived=None, rounds=2, target=0.0)
    keep_arrivals(arrivals_file(study, places.results), [row, row._replace(method="feddyn", target=0.5)])
    done = {job.experiment.label: job.is_done for job in jobs_of(study, places=places, found={}, num_seeds=1)}
    assert done == {"fedavg": True, "feddyn": False}  # that of feddyn is of a race to another target


@pytest.mark.slow
def test_a_campaign_that_was_stopped_goes_on_where_it_was(places, costs):
    run = runner(places, Callback(lambda record, _: True))  # each is stopped after its first round
    assert not list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(None), run=run))
    partly = {job.experiment.label: len(job.records) for job in jobs(places)}
    assert partly == {"fedavg": 1, "feddyn": 0}
    done = list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(None), run=runner(places)))
    assert len(done) == 2
    rounds = (places.results / experiment("fedavg").folder_name / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in rounds] == [1, 2]


def test_a_run_that_was_stopped_before_its_publication_is_published(places, costs):
    run_experiment(experiment("fedavg"), out=places.runs)
    done = list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(0.0), run=runner(places)))
    assert [job.experiment.label for job in done] == ["fedavg"]
    assert (places.results / experiment("fedavg").folder_name / "rounds.jsonl").exists()
    assert not list(places.runs.iterdir())


def test_a_round_that_would_not_end_in_time_is_not_begun(places, costs):
    assert not list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(0.0), run=runner(places)))
    assert not places.runs.exists()


def test_the_estimate_learns_from_runs_and_is_in_proportion(places, costs):
    one = experiment("fedavg")
    round = Record(1, 0.5, 1.0, 1.0, (0,), (), 1, 100, 1, 1, 2.0)  # 0.02 seconds a gradient
    costs.learn(one, [replace(round, seconds=200.0)] * 2)  # two rounds may have had a bad moment
    assert costs.seconds(one, rounds=10) < 100
    costs.learn(one, [round] * 3)
    assert gradient_evaluations(one) == pytest.approx(0.2 * 1437)
    assert costs.seconds(one, rounds=10) == pytest.approx(10 * 0.2 * 1437 * 0.02)
    assert costs.seconds(experiment("feddyn", 5), rounds=10) == pytest.approx(5 * costs.seconds(one, rounds=10))


@pytest.mark.slow
def test_what_was_begun_comes_before_what_is_cheaper(places, costs):
    run_experiment(experiment("feddyn", 5), out=places.runs, listeners=[Callback(lambda record, simulation: True)])
    done = list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(None), run=runner(places)))
    assert [job.experiment.label for job in done] == ["feddyn", "fedavg"]


@pytest.mark.slow
def test_a_round_that_outlasts_the_budget_is_cut_short_and_nothing_is_lost(places):
    before = signal.getsignal(signal.SIGALRM)
    began = time.monotonic()
    with pytest.raises(OutOfTimeError), TimeBudget(2.0).enforced():
        run_experiment(
            experiment("fedavg"), out=places.runs, listeners=[Callback(lambda record, simulation: time.sleep(60))]
        )
    assert time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert {job.experiment.label: len(job.records) for job in jobs(places)} == {"fedavg": 1, "feddyn": 0}
    assert run_experiment(experiment("fedavg"), out=places.runs).status == "finished"


def test_a_cost_is_remembered(tmp_path, costs):
    first = costs.seconds(experiment("fedavg"), rounds=1)
    assert first > 0
    assert CostEstimate(cache=tmp_path / "costs.json").seconds(experiment("fedavg"), rounds=1) == first


def test_a_column_that_is_not_there_is_named(places):
    with pytest.raises(Exception, match="no column 'two'; use one"):
        jobs(places, columns=["two"])


def test_each_seed_is_a_job(places):
    assert [job.experiment.seed for job in jobs_of(STUDY, places=places, found={}, num_seeds=3)][:3] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"), [("rounds.jsonl", '{"round": 1}\n'), ("rounds.jsonl", "garbage\n"), ("experiment.toml", None)]
)
def test_a_result_that_cannot_be_read_is_made_again(places, costs, caplog, name, content):
    list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(None), run=runner(places)))
    damaged = places.results / experiment("fedavg").folder_name / name
    whole = damaged.read_bytes()
    if content is None:
        damaged.unlink()
    else:
        damaged.write_text(content)
    again = list(play(jobs(places), places=places, costs=costs, budget=TimeBudget(None), run=runner(places)))
    assert [job.experiment.label for job in again] == ["fedavg"]
    assert "cannot be read" in caplog.text
    assert len(damaged.read_bytes().splitlines()) == len(whole.splitlines())
