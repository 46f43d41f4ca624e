"""A bar while a run goes on: in a terminal, and in a notebook, where it needs no widgets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedadmm.runs.goal import Goal
from fedadmm.runs.listeners import Listener
from fedadmm.runs.records import Record

if TYPE_CHECKING:
    from fedadmm.runs.side_by_side import Told
    from fedadmm.runs.simulation import Simulation

NOTEBOOK_SECONDS = 0.2  # between two updates of a notebook's bar, each of which is a message


def bars(goal: Goal, label: str, *, progress: bool, tell_refused: bool = True) -> list[Listener]:
    """Return a bar where one is asked for and somebody looks: a log has no use for it."""
    bar = Bar(goal, label, tell_refused=tell_refused)
    return [bar] if progress and bar.is_seen else []


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)


class Bars:
    """A bar for each of several runs that are played at once: that of one that has ended stays, above the others."""

    def __init__(
        self, runs: Sequence[tuple[Goal, str]], *, console: Console | None = None, tell_refused: bool = True
    ) -> None:
        self._console = Console(stderr=True) if console is None else console
        self._runs, self._tell_refused = list(runs), tell_refused
        self._progress = _progress(self._console)
        self._tasks: dict[int, Any] = {}
        self._handle: Any = None  # of a notebook's output
        self._shown_at = 0.0

    @property
    def is_seen(self) -> bool:
        """Whether they are in a terminal or a notebook."""
        return self._console.is_terminal or self._console.is_jupyter

    def __enter__(self) -> Bars:
        if self._console.is_jupyter:
            from IPython.display import display

            self._handle = display(self._progress.make_tasks_table([]), display_id=True)
        else:
            self._progress.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._show_in_notebook(now=True)
        self._progress.stop()

    def add(self, goal: Goal, label: str) -> None:
        """Add a run, whose place is after those that there are."""
        self._runs.append((goal, label))

    def tell(self, told: Told) -> None:
        """Move the bar of a run, and name the clients whose updates were refused."""
        goal, label = self._runs[told.run]
        if told.run not in self._tasks:
            self._tasks[told.run] = self._progress.add_task(label, total=goal.rounds, score="")
        task = self._tasks[told.run]
        if told.ended:
            self._leave(task)
        else:
            self._progress.update(task, completed=min(told.round, goal.rounds))
        if told.score:
            target = "" if goal.target is None else f" of {goal.target:g}"
            self._progress.update(task, score=f"{told.score}{target}")
        if told.refused and self._tell_refused:
            self._console.print(f"[yellow]{label}: round {told.round} refused the updates of clients {told.refused}")
        self._show_in_notebook()

    def _leave(self, task: Any) -> None:
        """Print the bar of a run that has ended above those of the others; a notebook keeps it in its place."""
        self._progress.stop_task(task)
        if self._handle is None:
            ended = [one for one in self._progress.tasks if one.id == task]
            self._progress.console.print(self._progress.make_tasks_table(ended))
            self._progress.remove_task(task)

    def _show_in_notebook(self, *, now: bool = False) -> None:
        if self._handle is not None and (now or time.monotonic() - self._shown_at > NOTEBOOK_SECONDS):
            self._shown_at = time.monotonic()
            self._handle.update(self._progress.make_tasks_table(self._progress.tasks))


class Bar(Listener):
    """A progress bar with score, target and time left."""

    def __init__(self, goal: Goal, label: str, *, console: Console | None = None, tell_refused: bool = True) -> None:
        self._console = Console(stderr=True) if console is None else console
        self._goal, self._label, self._tell_refused = goal, label, tell_refused
        self._target = "" if goal.target is None else f" of {goal.target:g}"
        self._progress = _progress(self._console)
        self._task = self._progress.add_task(label, total=goal.rounds, score="")
        self._handle: Any = None  # of a notebook's output
        self._shown_at = 0.0

    @property
    def is_seen(self) -> bool:
        """Whether it is in a terminal or a notebook."""
        return self._console.is_terminal or self._console.is_jupyter

    def started(self, history: Sequence[Record]) -> None:
        """Show the bar; only now, because a mistake in the set-up needs no bar."""
        if self._console.is_jupyter:
            from IPython.display import display

            self._handle = display(self._table(), display_id=True)
        else:
            self._progress.start()
        self._progress.update(self._task, completed=min(len(history), self._goal.rounds))
        self._show_score(history[: self._goal.rounds])

    def after_round(self, record: Record, simulation: Simulation) -> None:
        """Move the bar, and name the clients whose updates were refused."""
        self._progress.update(self._task, completed=record.round)
        self._show_score([record])
        if time.monotonic() - self._shown_at > NOTEBOOK_SECONDS:
            self._update_notebook()
        for client in record.refused if self._tell_refused else ():
            too_long = "it is longer than max_norm allows; lower local.learning_rate, or set local.clip"
            why = too_long if client in record.oversized else "it is not finite"
            self._progress.console.print(
                f"[yellow]{self._label}: round {record.round} refused the update of client {client}: {why}"
            )

    def _show_score(self, records: Sequence[Record]) -> None:
        """Show the last score of some rounds; the one before stays where none of them was evaluated."""
        metric = self._goal.judge(records)
        if scores := metric.scores(records):
            self._progress.update(self._task, score=f"{metric.named_text(scores[-1])}{self._target}")

    def ended(self) -> None:
        """Leave the bar as it is."""
        self._update_notebook()
        self._progress.stop()

    def _update_notebook(self) -> None:
        if self._handle is not None:
            self._shown_at = time.monotonic()
            self._handle.update(self._table())

    def _table(self) -> Any:
        return self._progress.make_tasks_table(self._progress.tasks)
