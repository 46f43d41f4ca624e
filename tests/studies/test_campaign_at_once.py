"""Campaigns whose runs are played at once, in processes: the results are those of one run after the other."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedadmm.algorithms import FedADMM, FedAvg
from fedadmm.cli.progress import CommandSession
from fedadmm.config.experiment import Experiment
from fedadmm.runs.listeners import TimeBudget
from fedadmm.studies.campaign import Job, NextRun, Places, jobs_of, play
from fedadmm.studies.costs import CostEstimate
from fedadmm.studies.paper.study import PaperRun, Study

METHODS = {"fedavg": FedAvg(), "fedadmm": FedADMM()}


class Campaign:
    """Two seeds of two methods, in a folder."""

    def __init__(self, folder: Path, *, rounds: int, seconds: float | None = None) -> None:
        self.places, self.session = Places(folder / "runs", folder / "results"), CommandSession(folder / "runs", None)
        self._budget, self._rounds = TimeBudget(seconds), rounds
        self._costs = CostEstimate(cache=folder / "costs.json")

    def jobs(self) -> list[Job]:
        """Return the runs, as far as they are."""
        table: dict[str, Any] = {"model": {"name": "softmax_regression"}, "local": {"epochs": 1}}
        runs = [
            PaperRun("one", Experiment(name="tiny", label=label, rounds=self._rounds, algorithm=algorithm, **table))
            for label, algorithm in METHODS.items()
        ]
        return jobs_of(Study("tiny", "Two methods", lambda size: runs), places=self.places, found={}, num_seeds=2)

    def play(self, *, at_once: int, needed: Callable[..., list[Job]] = list) -> list[Job]:
        """Play what is left, and return what was finished."""

        def run(waiting: Sequence[Experiment], next_run: NextRun) -> Iterator[tuple[Experiment, bool]]:
            for one, history in self.session.run_as_needed(lambda: next_run(at_once), self._budget, at_once=at_once):
                yield one, len(history) == one.rounds

        about: dict[str, Any] = {"places": self.places, "costs": self._costs, "budget": self._budget}
        return [*play(self.jobs(), run=run, needed=needed, **about)]

    def results(self) -> dict[str, list[Any]]:
        """Return the lines of the results, without the seconds that they took."""
        files = sorted(self.places.results.rglob("*.*"))
        texts = {str(file.relative_to(self.places.results)): file.read_text() for file in files}
        return {
            name: [json.loads(line) | {"seconds": 0} for line in text.splitlines()] if "jsonl" in name else [text]
            for name, text in texts.items()
        }


@pytest.mark.slow
def test_the_results_are_those_of_one_run_after_the_other(tmp_path: Path) -> None:
    alone, beside = (Campaign(tmp_path / name, rounds=2) for name in ("alone", "beside"))
    assert len(alone.play(at_once=1)) == len(beside.play(at_once=2)) == 4
    assert len(alone.results()) == 8
    assert beside.results() == alone.results()
    assert not list(beside.places.runs.iterdir())


@pytest.mark.slow
def test_only_what_is_needed_by_the_results_so_far_is_begun(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, rounds=1)

    def needed(jobs: Sequence[Job]) -> list[Job]:
        """Return one run more than are done, and never the last: as a race does."""
        return list(jobs)[: min(3, 1 + sum(job.is_done for job in jobs))]

    assert [job.experiment.seed for job in campaign.play(at_once=2, needed=needed)] == [0, 1, 0]
    assert [job.is_published for job in campaign.jobs()] == [True, True, True, False]
    assert not list(campaign.places.runs.iterdir())


@pytest.mark.slow
def test_ctrl_c_stops_all_after_their_round_and_no_other_begins(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, rounds=20_000, seconds=120.0)
    begin = time.monotonic()

    def num_begun() -> int:
        with suppress(OSError):  # a file that is just put in its place
            return sum(file.stat().st_size > 0 for file in tmp_path.glob("runs/*/rounds.jsonl"))
        return 0

    def ask() -> None:
        while num_begun() < 2:
            time.sleep(0.01)
        campaign.session.interruption.asked = True

    threading.Thread(target=ask, daemon=True).start()
    assert campaign.play(at_once=2) == []
    rounds = [len(job.records) for job in campaign.jobs()]
    assert sum(0 < number < 20_000 for number in rounds) == 2
    assert sum(number == 0 for number in rounds) == 2
    assert time.monotonic() - begin < 60


@pytest.mark.slow
def test_when_the_time_is_up_all_end_and_the_next_command_goes_on(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert Campaign(tmp_path, rounds=20_000, seconds=8.0).play(at_once=2) == []
    assert time.monotonic() - begin < 20
    before = [len(job.records) for job in Campaign(tmp_path, rounds=20_000).jobs()]
    assert sum(number > 0 for number in before) == 2
    more = Campaign(tmp_path, rounds=max(before) + 1)
    assert len(more.play(at_once=2, needed=lambda jobs: [job for job in jobs if job.records])) == 2
    assert not list(more.places.runs.iterdir())
