"""Several runs at once, each in a process of its own on one thread: the bytes of a run are those that it has alone.

A process plays whole runs, on the serial engine. One that dies is replaced, and its run goes on from its folder.
"""

import json
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from select import select
from typing import Any, NamedTuple

from torch import multiprocessing

from fedadmm.config.experiment import Experiment
from fedadmm.core.engine import num_cores
from fedadmm.engine.pool import Pool
from fedadmm.runs.assembly import federation_of
from fedadmm.runs.goal import Goal
from fedadmm.runs.listeners import Listener
from fedadmm.runs.records import Record, RunFolder
from fedadmm.runs.runner import run_in
from fedadmm.runs.simulation import Simulation

POLL = 0.2  # seconds between two looks at whether to stop
LONGEST = 200  # letters of a text that is told: a pipe takes some 4,000 bytes in one piece, whoever else writes to it
ROOM = 2**30  # bytes of memory that each process should find


class Told(NamedTuple):
    """What a run in another process tells of itself."""

    run: int  # its place
    round: int
    score: str = ""  # such as accuracy 0.912; "" if there is none yet
    refused: str = ""  # of this round, whose updates were refused
    ended: bool = False


class Played(NamedTuple):
    """What is left of a run that was played in another process: the rest is in its folder."""

    history: list[Record]
    rounds_before: int  # that were there when it began


class Job(NamedTuple):
    """The run at a place."""

    number: int
    experiment: Experiment

    def __str__(self) -> str:
        return f"the run {self.experiment.folder_name}"


def processes_for(experiments: Sequence[Experiment], *, records_only: bool = False) -> int:
    """Return how many runs to play at once; 1 where that would be slower, or is not possible.

    A single run uses all cores already, but most of them wait while a small model is evaluated or averaged.
    records_only: nobody asks for the states of clients when a run has ended, so that they may be in memory.
    """
    cores, folders = num_cores(), {experiment.folder_name for experiment in experiments}
    if len(folders) < max(2, cores / 2) or len(folders) < len(experiments) or not _forks():
        return 1
    for one in experiments:
        if one.engine not in ("workers", "serial") or one.workers is not None or one.device != "cpu":
            return 1
        if one.state.store != "disk" and not records_only:
            return 1
    return max(1, min(cores, len(experiments), _memory() // ROOM))


@dataclass(frozen=True)
class SideBySide:
    """Processes that play whole runs.

    tell: is told of every round. asked: whether to stop, after the rounds under way. listeners: hear a run's rounds in
        its own process, so that they can do no more than ask it to stop.
    """

    out: Path
    data_dir: Path | None
    processes: int
    tell: Callable[[Told], None] = lambda told: None
    asked: Callable[[], bool] = lambda: False
    listeners: Sequence[Listener] = ()

    def play(self, experiments: Sequence[Experiment]) -> Generator[Played | None]:
        """Yield the runs in their order as they end, None for one that was not begun."""
        jobs = [Job(number, one) for number, one in enumerate(experiments)]
        costs = [float(one.rounds) for one in experiments]
        with self._started() as pool:
            yield from pool.run(jobs.__getitem__, costs=costs, window=len(costs))

    def play_as_needed(self, next_run: Callable[[], Experiment | None]) -> Generator[tuple[Experiment, Played | None]]:
        """Yield runs as they end; a free process asks for the next, and all end when there is none for any."""
        numbers = count()

        def next_job() -> Job | None:
            experiment = next_run()
            return None if experiment is None else Job(next(numbers), experiment)

        with self._started() as pool:
            for job, played in pool.run_as_needed(next_job):
                yield job.experiment, played

    @contextmanager
    def _started(self) -> Iterator[Pool]:
        stop = multiprocessing.get_context("fork").RawValue("b", 0)
        receiving, sending = os.pipe()
        player = _Player(self.out, self.data_dir, sending, stop, tuple(self.listeners))
        pool = Pool(lambda: player, num_workers=self.processes)
        try:
            with _heard(receiving, self.tell, stop, self.asked):
                yield pool
        finally:
            pool.close()
            os.close(sending)


@dataclass(frozen=True)
class _Player:
    """Plays a run, in a process of the pool."""

    out: Path
    data_dir: Path | None
    sending: int  # the end of a pipe
    stop: Any  # a number that all processes share: whether to stop
    listeners: Sequence[Listener]

    def __call__(self, job: Job) -> Played | None:
        """Play the run, unless all are to stop."""
        if self.stop.value:
            return None
        experiment = job.experiment
        federation = federation_of(experiment.replace(engine="serial"), data_dir=self.data_dir)
        teller = _Teller(job.number, Goal.of(experiment), self.sending, self.stop)
        folder = RunFolder(self.out / experiment.folder_name)
        ended = run_in(folder, experiment, federation, listeners=[*self.listeners, teller])
        return Played(ended.history, ended.rounds_before)


@dataclass(frozen=True)
class _Teller(Listener):
    """Tells of each round in one piece, and asks to stop where all are to stop."""

    number: int
    goal: Goal
    sending: int
    stop: Any

    def started(self, history: Sequence[Record]) -> None:
        """Tell of the rounds that are there."""
        self._send(history[: self.goal.rounds])

    def after_round(self, record: Record, simulation: Simulation) -> bool:
        """Tell of a round."""
        self._send([record])
        return bool(self.stop.value)

    def _send(self, records: Sequence[Record]) -> None:
        metric, last = self.goal.judge(records), records[-1] if records else None
        score = metric.named_text(scores[-1]) if (scores := metric.scores(records)) else ""
        refused = ", ".join(map(str, last.refused)) if last is not None else ""
        self._write(Told(self.number, 0 if last is None else last.round, score[:LONGEST], refused[:LONGEST]))

    def ended(self) -> None:
        """Tell that no round follows."""
        self._write(Told(self.number, 0, ended=True))

    def _write(self, told: Told) -> None:
        with suppress(OSError):  # nobody hears any more
            os.write(self.sending, f"{json.dumps(told)}\n".encode())


@contextmanager
def _heard(receiving: int, tell: Callable[[Told], None], stop: Any, asked: Callable[[], bool]) -> Iterator[None]:
    """Pass on what is told while the runs go on, and whether to stop to the runs.

    The thread closes `receiving`, because it may outlive this: the time can be up while we wait for its end.
    """
    over = threading.Event()

    def listen() -> None:
        rest = b""
        with open(receiving, "rb", buffering=0) as telling:
            while True:
                stop.value = stop.value or asked()
                ready, _, _ = select([telling], [], [], POLL)
                if not ready:
                    if over.is_set():
                        return
                    continue
                if not (told := telling.read(1 << 16)):
                    return  # nobody can tell any more
                *lines, rest = (rest + told).split(b"\n")
                for line in lines:
                    tell(Told(*json.loads(line)))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        over.set()
        listener.join()


def _forks() -> bool:
    return multiprocessing.get_start_method(allow_none=True) in (None, "fork") and hasattr(os, "fork")


def _memory() -> int:
    """Return the bytes of memory that are free, as Linux tells them; elsewhere as much as one could ask for."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 2**62
