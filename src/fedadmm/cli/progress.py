"""What a person reads of a run: a bar while it goes on, a sentence when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedadmm.cli.console import err, say
from fedadmm.cli.interruption import Interruption
from fedadmm.config.experiment import Experiment
from fedadmm.report.table import format_seconds
from fedadmm.runs.metrics import metric_named
from fedadmm.runs.records import Record

if TYPE_CHECKING:
    from fedadmm.runs.runner import Run
    from fedadmm.runs.sinks import OpenSink


def run_with_progress(
    experiment: Experiment,
    *,
    out: Path,
    data_dir: Path | None,
    interruption: Interruption,
    proceed: Callable[[Record], bool] = lambda record: True,
    sinks: Sequence[OpenSink] = (),
    tell_refused: bool = True,
    values: str = "",
) -> Run:
    """Run an experiment behind a progress bar with score, target and time left.

    proceed: asked after each round whether to go on. tell_refused: name each client whose update is refused.
    values: what tells it from others of its label.
    """
    from fedadmm.runs.runner import run  # imports torch

    metric = metric_named(experiment.metric)
    target = "" if experiment.target is None else f" of {experiment.target:g}"
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=err)
    with interruption.watched(), _log_shown(), _stopped(progress):
        label = experiment.label or experiment.algorithm_name
        task = progress.add_task(f"{label} {values}".strip(), total=experiment.rounds, score="")

        def on_start(rounds_before: int) -> None:
            progress.start()  # only now: a mistake in the set-up needs no bar
            progress.update(task, completed=min(rounds_before, experiment.rounds))

        def on_round(record: Record) -> bool:
            score = metric.of(record)
            text = "" if score is None else f"{metric.named_text(score)}{target}"
            progress.update(task, completed=record.round, score=text)
            for client in record.refused if tell_refused else ():
                progress.console.print(
                    f"[yellow]{label}: round {record.round} refused client {client}: its update is not finite"
                )
            return proceed(record) and not interruption.asked

        return run(experiment, out=out, data_dir=data_dir, on_start=on_start, on_round=on_round, sinks=sinks)


@contextmanager
def _stopped(progress: Progress) -> Iterator[None]:
    try:
        yield
    finally:
        progress.stop()


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


def tell_end(ended: Run) -> None:
    """Print how a run ended, what it reached and where it is."""
    say(_sentence(ended))


def _sentence(ended: Run) -> str:
    experiment, done, folder = ended.experiment, len(ended.history), ended.folder.path
    metric = metric_named(experiment.metric)
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
    if _nobody_came(ended):
        assert experiment.clock is not None
        return (
            f"Learned nothing in {done} rounds: no client ever met clock.deadline={experiment.clock.deadline:g}; "
            f"raise it, or ask for fewer epochs. {folder}"
        )
    if ended.rounds_before == done:
        return f"All {done} rounds are there already{reached}: {folder}"
    return f"Finished {done} rounds{reached}: {folder}"


def _nobody_came(ended: Run) -> bool:
    """Return whether a deadline left every round of a run empty."""
    clock, faults = ended.experiment.clock, ended.experiment.faults
    has_deadline = clock is not None and clock.deadline is not None and faults is None
    return has_deadline and all(r.lost and not r.clients and not r.refused for r in ended.history)
