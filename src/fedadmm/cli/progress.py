"""What a person sees while a run goes on, and how signals end it."""

import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedadmm.config.experiment import Experiment
from fedadmm.runs.records import Record, score_of, score_text
from fedadmm.runs.runner import Run, run
from fedadmm.runs.sinks import OpenSink

console = Console(stderr=True)


class StoppedAtOnce(BaseException):
    """The second Ctrl-C, or SIGTERM; `code` is what a shell makes of the signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        self.code = 128 + number


class Interruption:
    """The first Ctrl-C lets the round end; the second stops at once, and so does SIGTERM."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch for both signals, and give them their meaning back afterwards."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, meaning in before.items():
                signal.signal(number, meaning)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked or number == signal.SIGTERM:
            raise StoppedAtOnce(number)
        self.asked = True
        console.print("[yellow]Finishing this round; Ctrl-C again stops at once, and loses this round only.")


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
    metric = experiment.metric
    target = "" if experiment.target is None else f" of {experiment.target:{'.0e' if metric == 'distance' else '.3f'}}"
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=console)
    with interruption.watched(), _log_shown(), _stopped(progress):
        label = experiment.label or experiment.algorithm_name
        task = progress.add_task(f"{label} {values}".strip(), total=experiment.rounds, score="")

        def on_start(rounds_before: int) -> None:
            progress.start()  # only now: a mistake in the set-up needs no bar
            progress.update(task, completed=min(rounds_before, experiment.rounds))

        def on_round(record: Record) -> bool:
            score = score_text(score_of(record, metric), metric)
            progress.update(task, completed=record.round, score=score and f"{score}{target}")
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
    handler = RichHandler(console=console, show_time=False, show_level=False, show_path=False)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
