"""A campaign: the runs of studies, the cheapest first, until they are done or the time is up; and their report."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.report.runs import Published, Section, read_run
from fedadmm.runs.goal import Goal
from fedadmm.runs.listeners import TimeBudget
from fedadmm.runs.records import Record, RunFolder
from fedadmm.runs.tuning import Tuned
from fedadmm.studies.costs import CostEstimate
from fedadmm.studies.paper.study import PaperRun, Size, Study, as_released, tuned_experiment
from fedadmm.studies.ratios import Arrival, arrivals_file, read_arrivals
from fedadmm.studies.unclipped import as_made

logger = logging.getLogger(__name__)

# Returns the run to begin next, None if there is none at the moment; it is told how many are played at once.
NextRun = Callable[[int], Experiment | None]
# Plays runs: those that could begin now go in, and what says which is next; each comes out as it ends, with whether
# it came to its end. It may return before all are played.
PlayRuns = Callable[[Sequence[Experiment], NextRun], Iterable[tuple[Experiment, bool]]]


@dataclass(frozen=True)
class Job:
    """One run that a study needs, and how far it is."""

    paper_run: PaperRun
    experiment: Experiment  # with the values that tuning found, and a seed
    is_tuned: bool
    records: tuple[Record, ...]
    kept: tuple[Record, ...]  # those among the results
    arrival: Arrival | None = None  # what is kept of it where a study keeps no records; it has ended then

    @property
    def is_published(self) -> bool:
        """Whether its records, or its arrival, are among the results."""
        return self.arrival is not None or Goal.of(self.experiment).has_ended(self.kept)

    def limited(self, rounds: int) -> "Job":
        """Return the run with at most this many rounds."""
        return replace(self, experiment=self.experiment.replace(rounds=min(rounds, self.experiment.rounds)))

    def read(self, places: "Places") -> "Job":
        """Return the run as far as it is now."""
        name = self.experiment.folder_name
        kept = tuple(_records_in(RunFolder(places.results / name)))
        made = kept if places.runs == places.results else tuple(_records_in(RunFolder(places.runs / name)))
        return replace(self, records=max(made, kept, key=len), kept=kept)

    @property
    def is_done(self) -> bool:
        """Whether no round is left."""
        return self.arrival is not None or Goal.of(self.experiment).has_ended(self.records)

    @property
    def seconds_spent(self) -> float:
        """What the rounds so far took."""
        return sum(record.seconds for record in self.records)

    def seconds_left(self, costs: CostEstimate) -> float:
        """Return the estimated seconds of the rounds that are left."""
        if self.is_done:
            return 0.0
        return costs.seconds_from_start(self.experiment, rounds=self.experiment.rounds - len(self.records))


class Places(NamedTuple):
    """Where a campaign keeps things: runs that are being made, and the small files of those that are done."""

    runs: Path
    results: Path


def jobs_of(
    study: Study,
    *,
    places: Places,
    found: Tuned,
    size: Size = "paper",
    columns: Iterable[str] | None = None,
    num_seeds: int | None = None,
    released: bool = False,
) -> list[Job]:
    """Return the runs of a study, each once for each seed."""
    jobs = []
    rows = read_arrivals(arrivals_file(study, places.results)) if study.keeps_arrivals and size == "paper" else []
    arrivals = {(row.problem, row.method, row.seed): row for row in rows}
    paper_runs = study.runs(size, columns=columns)
    for paper_run in as_released(paper_runs) if released else paper_runs:
        experiment = tuned_experiment(paper_run, found)
        one = experiment or paper_run.experiment
        seeds = [one.replace(seed=seed) for seed in range(num_seeds or study.seeds(size))]
        for run in as_made(seeds, lambda made: _records_in(RunFolder(places.results / made.folder_name))):
            arrival = arrivals.get((paper_run.column, run.method, run.seed))
            if arrival is not None and arrival.target != (run.target or 0.0):
                arrival = None  # of another race
            jobs.append(Job(paper_run, run, experiment is not None, (), (), arrival).read(places))
    return jobs


def _records_in(folder: RunFolder) -> list[Record]:
    """Return the rounds of a folder; none, with a warning, if they cannot be read: the run is made again."""
    try:
        if folder.path.exists():
            (folder.path / "experiment.toml").read_bytes()
            return [Record.from_json(line) for line in folder.read_records()]
    except (OSError, InputError, KeyError, TypeError) as error:
        logger.warning("%s cannot be read (%s: %s); its run is made again", folder.path, type(error).__name__, error)
    return []


def publish(experiment: Experiment, places: Places) -> None:
    """Keep a finished run's experiment and records as small files, and let go of its state and model."""
    made, kept = places.runs / experiment.folder_name, places.results / experiment.folder_name
    try:
        kept.mkdir(parents=True, exist_ok=True)
        for name in ("experiment.toml", "rounds.jsonl"):
            write_whole(kept / name, (made / name).read_bytes())
    except OSError as error:
        raise InputError(
            f"cannot write {kept}: {error.strerror}; fix that and run the same command again: "
            f"the run is whole in {made}"
        ) from error
    RunFolder(made).remove()


def play(
    jobs: Iterable[Job],
    *,
    places: Places,
    costs: CostEstimate,
    budget: TimeBudget,
    run: PlayRuns,
    needed: Callable[[Iterable[Job]], list[Job]] = list,
) -> Iterator[Job]:
    """Run what is missing, what was begun and then the cheapest first, and give back each job that was finished.

    run: runs experiments within the budget. None is begun after one that did not come to its end.
    needed: returns the jobs that are needed by what is known so far.
    """
    queue = _Queue({job.experiment.folder_name: job for job in jobs}, places, needed)
    is_over = False

    def next_run(at_once: int) -> Experiment | None:
        job = min(queue.to_run(), key=lambda job: (not job.records, job.seconds_left(costs)), default=None)
        # A run that is played beside others has a share of the cores alone, and is as much slower.
        if is_over or job is None or not budget.has_time_for(costs.seconds_from_start(job.experiment, rounds=at_once)):
            return None
        queue.begun.add(job.experiment.folder_name)
        return job.experiment

    yield from queue.published()
    while not is_over and (waiting := queue.to_run()):
        num_played = 0
        for experiment, has_ended in run([job.experiment for job in waiting], next_run):
            num_played += 1
            if has_ended:
                queue.ended(experiment)
                yield from queue.published()
            else:
                is_over = True
        is_over = is_over or not num_played  # there is no time for a round of any


class _Queue:
    """The runs of a campaign, and which of them are under way or were stopped."""

    def __init__(self, known: dict[str, Job], places: Places, needed: Callable[[Iterable[Job]], list[Job]]) -> None:
        self._known, self._places, self._needed = known, places, needed
        self.begun = set[str]()

    def to_run(self) -> list[Job]:
        """Return what is needed by what is known now, and can begin."""
        return [job for job in self._left() if not job.is_done]

    def ended(self, experiment: Experiment) -> None:
        """Take up the rounds of a run that came to its end."""
        self.begun.remove(experiment.folder_name)
        self._read(experiment.folder_name)

    def published(self) -> Iterator[Job]:
        """Publish what has ended: now, before a stop, or because fewer rounds are needed than were thought."""
        for job in self._left():
            if job.is_done:
                publish(job.experiment, self._places)
                self._read(job.experiment.folder_name)
                yield job

    def _left(self) -> list[Job]:
        jobs = [job for job in self._needed(self._known.values()) if not job.is_published]
        return [job for job in jobs if job.experiment.folder_name not in self.begun]

    def _read(self, name: str) -> None:
        self._known[name] = self._known[name].read(self._places)


def paper_report(study: Study, jobs: Iterable[Job], *, results: Path) -> list[Section]:
    """Return the finished runs of a study, a section for each column that has some, with the paper's figures."""
    sections: dict[str, Section] = {}
    for job in jobs:
        folder = results / job.experiment.folder_name
        if not folder.exists():
            continue
        column, rounds, percent = job.paper_run.column, job.paper_run.rounds, job.paper_run.accuracy
        run = read_run(folder)
        if rounds is not None:
            where = f"{study.title.partition(':')[0]}, {column}"
            arrival, final = int(rounds) if rounds.isdigit() else None, None if percent is None else percent / 100
            run = replace(run, published=Published(where, arrival, final))
        sections.setdefault(column, Section(column, [])).runs.append(run)
    return list(sections.values())
