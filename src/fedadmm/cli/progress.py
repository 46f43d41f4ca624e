"""What a person reads of a run: a bar while it goes on, a sentence when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedadmm.cli.console import err
from fedadmm.config.experiment import Experiment
from fedadmm.report.table import format_seconds
from fedadmm.runs.listeners import Interruption, Listener, OutOfTimeError, TimeBudget
from fedadmm.runs.records import Goal, Record

if TYPE_CHECKING:
    from fedadmm.runs.runner import Run
    from fedadmm.runs.simulation import Simulation
    from fedadmm.runs.sinks import OpenSink


@dataclass(frozen=True)
class Session:
    """What the runs of one command share: where they are, the tools that their records go to, and Ctrl-C."""

    out: Path
    data_dir: Path | None
    sinks: Sequence[OpenSink] = ()
    tell_refused: bool = True  # name each client whose update is refused
    interruption: Interruption = field(default_factory=Interruption)

    def run(self, experiment: Experiment, *, listeners: Sequence[Listener] = (), values: str = "") -> Run:
        """Run an experiment behind a progress bar; `values` tell it from others of its label."""
        from fedadmm.runs.runner import run  # imports torch

        opened = [sink(experiment, self.out / experiment.folder_name) for sink in self.sinks]
        bar = Bar(experiment, tell_refused=self.tell_refused, values=values)
        listening = [*opened, bar, *listeners, self.interruption]
        with self.interruption.watched(), _log_shown():
            return run(experiment, out=self.out, data_dir=self.data_dir, listeners=listening)

    def run_in_time(self, experiment: Experiment, budget: TimeBudget, *, values: str = "") -> Run | None:
        """Get the data and run an experiment; return None if the time is up in the midst of a round."""
        from fedadmm.data.sources import ensure  # imports torch

        ensure(experiment.data.name, data_dir=self.data_dir)
        with suppress(OutOfTimeError), budget.enforced():
            return self.run(experiment, listeners=[budget], values=values)
        return None


class Bar(Listener):
    """A progress bar with score, target and time left."""

    def __init__(self, experiment: Experiment, *, tell_refused: bool, values: str) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[score]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._rounds, self._tell_refused = experiment.rounds, tell_refused
        self._goal = Goal.of(experiment)
        self._target = "" if experiment.target is None else f" of {experiment.target:g}"
        self._label = experiment.label or experiment.algorithm_name
        self._progress = Progress(*columns, console=err)
        self._task = self._progress.add_task(f"{self._label} {values}".strip(), total=self._rounds, score="")

    def started(self, history: Sequence[Record]) -> None:
        """Show the bar; only now, because a mistake in the set-up needs no bar."""
        self._progress.start()
        self._progress.update(self._task, completed=min(len(history), self._rounds))
        self._show_score(history)

    def after_round(self, record: Record, simulation: Simulation) -> None:
        """Move the bar, and name the clients whose updates were refused or oversized."""
        self._progress.update(self._task, completed=record.round)
        self._show_score([record])
        for client in record.refused if self._tell_refused else ():
            self._progress.console.print(
                f"[yellow]{self._label}: round {record.round} refused client {client}: its update is not finite"
            )
        for client in record.oversized if self._tell_refused else ():
            self._progress.console.print(
                f"[yellow]{self._label}: round {record.round} applied an update of client {client} that is over a "
                "million times as long as the model; lower local.learning_rate, or set local.clip"
            )

    def _show_score(self, records: Sequence[Record]) -> None:
        """Show the last score of some rounds; the one before stays where none of them was evaluated."""
        metric = self._goal.judge(records)
        if scores := metric.scores(records):
            self._progress.update(self._task, score=f"{metric.named_text(scores[-1])}{self._target}")

    def ended(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()


@contextmanager
def _log_shown() -> Iterator[None]:
    """Show what the library says of its choices, such as the engine that "auto" picked."""
    logger = logging.getLogger("fedadmm")
    handler = RichHandler(console=err, show_time=False, show_level=False, show_path=False)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def how_it_ended(ended: Run) -> str:
    """Return how a run ended, what it reached and where it is."""
    experiment, done, folder = ended.experiment, len(ended.history), ended.folder.path
    metric = Goal.of(experiment).judge(ended.history)
    best = metric.best(metric.scores(ended.history))
    reached = "" if best is None else f", best {metric.named_text(best)}"
    times = [record.simulated_seconds for record in ended.history if record.simulated_seconds is not None]
    reached += f", in {format_seconds(sum(times))} of simulated time" if times else ""
    if ended.status == "diverged":
        return (
            f"Diverged in round {done}: no client's update was finite; lower local.learning_rate "
            f"({experiment.local.learning_rate}) or the server's step. {folder}"
        )
    if ended.status == "stopped":
        return (
            f"Stopped after {done} of {experiment.rounds} rounds{reached}; the same command goes on from there. "
            f"{folder}"
        )
    clock = experiment.clock
    nobody_came = all(record.lost and not record.clients and not record.refused for record in ended.history)
    if nobody_came and clock is not None and clock.deadline is not None and experiment.faults is None:
        return (
            f"Learned nothing in {done} rounds: no client ever met clock.deadline={clock.deadline:g}; "
            f"raise it, or ask for fewer epochs. {folder}"
        )
    if ended.rounds_before == done:
        return f"All {done} rounds are there already{reached}: {folder}"
    return f"Finished {done} rounds{reached}: {folder}"
