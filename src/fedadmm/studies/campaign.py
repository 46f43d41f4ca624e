"""A campaign: the runs of studies, the cheapest first, until they are done or the time is up; and their report."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.report.runs import Published, Section, read_run
from fedadmm.runs.folder import RunFolder
from fedadmm.runs.listeners import Listener, TimeBudget
from fedadmm.runs.records import Goal, Record
from fedadmm.studies.cost_estimate import CostEstimate
from fedadmm.studies.paper.study import PaperRun, Size, Study, as_released
from fedadmm.studies.paper.tuned import Tuned, tuned_experiment

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One run that a study needs, and how far it is."""

    paper_run: PaperRun
    experiment: Experiment  # with the values that tuning found, and a seed
    is_tuned: bool
    records: tuple[Record, ...]
    is_published: bool  # its records are among the results

    @property
    def is_done(self) -> bool:
        """Whether no round is left."""
        return Goal.of(self.experiment).has_ended(self.records)

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
    paper_runs = study.runs(size, columns=columns)
    for paper_run in as_released(paper_runs) if released else paper_runs:
        experiment = tuned_experiment(paper_run, found)
        for seed in range(num_seeds or study.seeds(size)):
            run = (experiment or paper_run.experiment).replace(seed=seed)
            made, kept = (_records_in(RunFolder(folder / run.folder_name)) for folder in places)
            records = tuple(made if len(made) > len(kept) else kept)
            jobs.append(Job(paper_run, run, experiment is not None, records, is_published=Goal.of(run).has_ended(kept)))
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
    run: Callable[[Experiment, Listener], bool],
) -> Iterator[Job]:
    """Run what is missing, what was begun and then the cheapest first, and give back each job that was finished.

    run: runs an experiment with a listener, and returns whether the run came to its end.
    """
    unique = {job.experiment.folder_name: job for job in jobs if not job.is_published}
    for job in sorted(unique.values(), key=lambda job: (not job.records, job.seconds_left(costs))):
        if not job.is_done:  # else it was stopped between its last round and its publication
            enough = budget.has_time_for(costs.seconds_from_start(job.experiment, rounds=1))
            if not enough or not run(job.experiment, budget):
                return
        publish(job.experiment, places)
        yield job


def paper_report(study: Study, jobs: Iterable[Job], *, results: Path) -> list[Section]:
    """Return the finished runs of a study, a section for each column that has some, with the paper's figures."""
    sections: dict[str, Section] = {}
    for job in jobs:
        folder = results / job.experiment.folder_name
        if not folder.exists():
            continue
        column, rounds = job.paper_run.column, job.paper_run.rounds
        run = read_run(folder)
        if rounds is not None:
            where = f"{study.title.partition(':')[0]}, {column}"
            run = replace(run, published=Published(where, int(rounds) if rounds.isdigit() else None))
        sections.setdefault(column, Section(column, [])).runs.append(run)
    return list(sections.values())
