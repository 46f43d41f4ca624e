"""A campaign: the runs of studies, the cheapest first, until they are done or the time is up; and their report.

How long a run takes is measured on runs that were made on this machine, or else on a few batches.
"""

import json
import logging
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import platformdirs

from fedadmm.algorithms import FedAvg, FedSGD
from fedadmm.config.experiment import Experiment
from fedadmm.core.engine import num_cores
from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.report.runs import Published, Section, read_run
from fedadmm.runs.goal import Goal
from fedadmm.runs.listeners import TimeBudget
from fedadmm.runs.records import Record, RunFolder
from fedadmm.runs.tuning import Tuned
from fedadmm.studies.paper.study import PaperRun, Size, Study, as_released, tuned_experiment
from fedadmm.studies.ratios import Arrival, arrivals_file, read_arrivals
from fedadmm.training.local import LocalTraining

logger = logging.getLogger(__name__)

NUM_EXAMPLES = {"mnist": 60_000, "fmnist": 60_000, "cifar10": 50_000, "digits": 1437}
SHAPES = {"mnist": (1, 28, 28), "fmnist": (1, 28, 28), "cifar10": (3, 32, 32), "digits": (1, 8, 8)}
PROBE_EXAMPLES = 200
START_SECONDS = 5.0  # for the data and the workers of a run
ROUNDS_THAT_TELL = 3  # fewer may have had a bad moment


class CostEstimate:
    """Seconds per gradient of one example, for each network and batch size."""

    def __init__(self, cache: Path | None = None, *, on_probe: Callable[[str], None] = lambda steps: None) -> None:
        """Begin with what was timed before; on_probe is told what is about to be timed."""
        self._on_probe = on_probe
        self._file = cache or platformdirs.user_cache_path("fedadmm") / "pace.json"
        try:
            self._known: dict[str, float] = dict(json.loads(self._file.read_text()))
        except (OSError, ValueError):
            self._known = {}  # measured again

    def learn(self, experiment: Experiment, records: Iterable[Record]) -> None:
        """Remember how fast a run was that was made on this machine."""
        if _is_made_on_the_spot(experiment):
            seconds = [r.seconds for r in records]
        else:
            seconds = [r.seconds / r.gradient_evaluations for r in records if r.gradient_evaluations]
        if len(seconds) >= ROUNDS_THAT_TELL:
            self._remember(_key(experiment), statistics.median(seconds))

    def seconds(self, experiment: Experiment, *, rounds: int) -> float:
        """Return the estimated seconds of this many rounds.

        Rounds on data that is made on the spot are small, and count nothing until such a run was made.
        """
        key = _key(experiment)
        if _is_made_on_the_spot(experiment):
            return rounds * self._known.get(key, 0.0)
        if key not in self._known:
            self._on_probe(_steps(experiment))
            self._remember(key, _probe(experiment))
        return rounds * gradient_evaluations(experiment) * self._known[key]

    def is_known(self, experiment: Experiment) -> bool:
        """Return whether an estimate needs no timing on this machine first."""
        return _is_made_on_the_spot(experiment) or _key(experiment) in self._known

    def seconds_from_start(self, experiment: Experiment, *, rounds: int) -> float:
        """Return the estimated seconds of a start and this many rounds."""
        return START_SECONDS + self.seconds(experiment, rounds=rounds)

    def _remember(self, key: str, seconds: float) -> None:
        self._known[key] = seconds
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._known, indent=1))


def gradient_evaluations(experiment: Experiment) -> float:
    """Return how many gradients of one example a round of one of the paper's experiments takes."""
    assert isinstance(experiment.participation, float)
    epochs = 1.0 if isinstance(experiment.algorithm, FedSGD) else experiment.local.mean_epochs
    share = 1.0 if trait(experiment.algorithm, SkipsCommunication) else experiment.participation  # then all compute
    return share * NUM_EXAMPLES[experiment.data.name] * epochs


def _batch(experiment: Experiment) -> int:
    """Return how many examples a step takes: FedSGD and a full batch take all of a client's."""
    batch = experiment.local.batch_size
    if batch != "full" and not isinstance(experiment.algorithm, FedSGD):
        return batch
    return min(NUM_EXAMPLES[experiment.data.name] // (experiment.data.num_clients or 1), 1000)


def _is_made_on_the_spot(experiment: Experiment) -> bool:
    return experiment.data.name not in NUM_EXAMPLES


def _steps(experiment: Experiment) -> str:
    if _is_made_on_the_spot(experiment):
        return f"a round on {experiment.data.name}"
    return f"{experiment.model.name} on {experiment.data.name}, batches of {_batch(experiment)}"


_version = cache(version)  # slow, and asked for once a run


def _key(experiment: Experiment) -> str:
    return f"{_steps(experiment)}, {num_cores()} cores, torch {_version('torch')}"


def _probe(experiment: Experiment) -> float:
    """Return the seconds per gradient of a round on random images, spread over the cores."""
    import torch

    from fedadmm.data import federate, make_dataset
    from fedadmm.runs.simulation import Simulation

    batch = _batch(experiment)
    num_clients = max(1, PROBE_EXAMPLES // batch)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(num_clients * batch, *SHAPES[experiment.data.name], generator=generator)
    targets = torch.randint(0, 10, (num_clients * batch,), generator=generator)
    data = federate(make_dataset((inputs, targets)), num_clients=num_clients, partition="iid", seed=0)
    model, local = experiment.model.name, LocalTraining(epochs=1, batch_size=batch, learning_rate=1e-3)
    simulation = Simulation(FedAvg(), model=model, data=data, local=local, participation=1.0, seed=0, engine="serial")
    simulation.advance()  # warms up
    began = time.thread_time()
    simulation.advance()
    return (time.thread_time() - began) / (num_clients * batch) / num_cores()


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
        for seed in range(num_seeds or study.seeds(size)):
            run = (experiment or paper_run.experiment).replace(seed=seed)
            arrival = arrivals.get((paper_run.column, run.method, seed))
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
    run: Callable[[Experiment], bool],
    needed: Callable[[Iterable[Job]], list[Job]] = list,
) -> Iterator[Job]:
    """Run what is missing, what was begun and then the cheapest first, and give back each job that was finished.

    run: runs an experiment within the budget, and returns whether the run came to its end.
    needed: returns the jobs that are needed by what is known so far.
    """
    known = {job.experiment.folder_name: job for job in jobs}
    while left := [job for job in needed(known.values()) if not job.is_published]:
        job = min(left, key=lambda job: (not job.records, job.seconds_left(costs)))
        if not job.is_done:  # else it was stopped between its last round and its publication
            enough = budget.has_time_for(costs.seconds_from_start(job.experiment, rounds=1))
            if not enough or not run(job.experiment):
                return
        publish(job.experiment, places)
        name = job.experiment.folder_name
        known[name] = known[name].read(places)
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
