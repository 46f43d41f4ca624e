"""What a person reads of a run: a bar while it goes on, a sentence when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings

import typer
from rich.logging import RichHandler

from fedadmm.api.progress import Bar, Bars
from fedadmm.cli.console import err, say
from fedadmm.config.experiment import Experiment
from fedadmm.report.table import format_seconds
from fedadmm.runs.goal import EXIT_CODES, Goal, is_spent, why_it_diverged
from fedadmm.runs.listeners import Interruption, Listener, OutOfTimeError, TimeBudget

if TYPE_CHECKING:
    from fedadmm.api.result import Result
    from fedadmm.api.running import Planned
    from fedadmm.runs.records import Record


@dataclass(frozen=True)
class CommandSession:
    """What the runs of one command share: where they are, the tools that their records go to, and Ctrl-C."""

    out: Path
    data_dir: Path | None
    log_to: str = ""
    tell_refused: bool = True  # name each client whose update is refused
    accept_code: bool = False  # go on with other code than a run began with
    interruption: Interruption = field(default_factory=Interruption)

    def run(self, experiment: Experiment, *, listeners: Sequence[Listener] = (), values: str = "") -> Result:
        """Run an experiment behind a progress bar; `values` tell it from others of its label."""
        from fedadmm.api.result import DivergedWarning  # imports torch
        from fedadmm.api.running import run

        label = f"{experiment.method} {values}".strip()
        bar = Bar(Goal.of(experiment), label, console=err, tell_refused=self.tell_refused)
        heard = [bar, *listeners, self.interruption]
        with self.interruption.watched(), _log_shown(), catch_warnings(action="ignore", category=DivergedWarning):
            return run(
                experiment,
                out=self.out,
                data_dir=self.data_dir,
                log_to=self.log_to,
                callbacks=heard,
                progress=False,
                accept_code=self.accept_code,
            )

    def run_all(self, planned: Sequence[Planned]) -> Sequence[Result]:
        """Run experiments; where Ctrl-C stops one, say so and end the command."""
        results: list[Result] = []
        with closing(self._ended(planned)) as ended:
            for result in ended:
                if result is None or result.status == "stopped":
                    say("Stopped; the same command goes on from here" if result is None else how_it_ended(result))
                    raise typer.Exit(EXIT_CODES["stopped"])
                results.append(result)
        return results

    def run_all_in_time(self, planned: Sequence[Planned], budget: TimeBudget) -> Sequence[Result] | None:
        """Get the data and run experiments; return None if the time is up, or if Ctrl-C stops one."""
        from fedadmm.data.sources import ensure  # imports torch

        for name in {experiment.data.name for experiment, _ in planned}:
            ensure(name, data_dir=self.data_dir)
        results: list[Result] = []
        with suppress(OutOfTimeError), budget.enforced(), closing(self._ended(planned, listeners=[budget])) as ended:
            for result in ended:
                if result is None or result.status == "stopped":
                    return None
                results.append(result)
            return results
        return None

    def _ended(self, planned: Sequence[Planned], listeners: Sequence[Listener] = ()) -> Generator[Result | None]:
        """Run experiments, side by side where that is faster; yield each as it ends, None if it was not begun."""
        from fedadmm.api.running import named, played_at_once  # imports torch
        from fedadmm.runs.side_by_side import processes_for

        processes = 1 if self.log_to else processes_for([one for one, _ in planned])
        if processes == 1:
            for one, values in planned:
                yield self.run(one, listeners=listeners, values=values)
            return
        bars = Bars(named(planned), console=err, tell_refused=self.tell_refused)
        about: dict[str, Any] = {"data_dir": self.data_dir, "processes": processes, "bars": bars}
        with self.interruption.watched(), _log_shown():
            yield from played_at_once(
                planned, self.out, asked=lambda: self.interruption.asked, listeners=listeners, **about
            )

    def run_as_needed(
        self, next_run: Callable[[], Experiment | None], budget: TimeBudget, *, at_once: int
    ) -> Generator[tuple[Experiment, Sequence[Record]]]:
        """Run one experiment, or several at once until there is none left; yield each with its rounds as it ends."""
        from fedadmm.data.sources import ensure  # imports torch
        from fedadmm.runs.side_by_side import SideBySide

        if at_once == 1:
            if (experiment := next_run()) is not None:
                ensure(experiment.data.name, data_dir=self.data_dir)
                result = None
                with suppress(OutOfTimeError), budget.enforced():  # ends a run in the midst of a round
                    result = self.run(experiment, listeners=[budget])
                yield experiment, [] if result is None else result.history
            return
        bars = Bars([], console=err, tell_refused=self.tell_refused)

        def next_with_bar() -> Experiment | None:
            experiment = next_run()
            if experiment is not None:
                ensure(experiment.data.name, data_dir=self.data_dir)
                bars.add(Goal.of(experiment), f"{experiment.method}, {experiment.name}, seed {experiment.seed}")
            return experiment

        players = SideBySide(self.out, self.data_dir, at_once, bars.tell, lambda: self.interruption.asked, [budget])
        with self.interruption.watched(), _log_shown(), bars, closing(players.play_as_needed(next_with_bar)) as ended:
            while True:
                one = None
                with suppress(OutOfTimeError), budget.enforced():  # but not while the caller makes use of a run
                    one = next(ended, None)
                if one is None:
                    return
                experiment, played = one
                yield experiment, [] if played is None else played.history


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


def how_it_ended(ended: Result) -> str:
    """Return how a run ended, what it reached and where it is."""
    experiment, done, folder = ended.experiment, len(ended.history), ended.folder
    reached = "" if ended.best is None else f", best {ended.metric.named_text(ended.best)}"
    times = [record.simulated_seconds for record in ended.history if record.simulated_seconds is not None]
    reached += f", in {format_seconds(sum(times))} of simulated time" if times else ""
    if ended.status == "diverged":
        return (
            f"Diverged in round {done}: {why_it_diverged(ended.history[-1])}; lower local.learning_rate "
            f"({experiment.local.learning_rate}) or the server's step. {folder}"
        )
    if ended.status == "stopped":
        then = "goes on from there" if experiment.state.store == "disk" else "begins anew, as state.store is in memory"
        return f"Stopped after {done} of {experiment.rounds} rounds{reached}; the same command {then}. {folder}"
    if is_spent(ended.history) and done < experiment.rounds and experiment.privacy is not None:
        return (
            f"Ended after {done} of {experiment.rounds} rounds{reached}: one more would cost more than "
            f"privacy.epsilon={experiment.privacy.epsilon:g}. {folder}"
        )
    clock = experiment.clock
    nobody_came = all(record.lost and not record.clients and not record.refused for record in ended.history)
    if nobody_came and clock is not None and clock.deadline is not None and experiment.faults is None:
        return (
            f"Learned nothing in {done} rounds: no client ever met clock.deadline={clock.deadline:g}; "
            f"raise it, or ask for fewer epochs. {folder}"
        )
    if ended.status == "collapsed":
        first, *_, last = ended.scores.values()
        return (
            f"Collapsed in {done} rounds{reached}: {ended.metric.named_text(last)} at the end, which is worse than "
            f"{ended.metric.text(first)} at first; lower local.learning_rate ({experiment.local.learning_rate}). "
            f"{folder}"
        )
    if ended.rounds_before == done > experiment.rounds:
        score = ended.scores.get(experiment.rounds)
        then = "" if score is None else f", {ended.metric.named_text(score)} after round {experiment.rounds}"
        return f"{done} rounds are there already, and {experiment.rounds} were asked for{then}{reached}: {folder}"
    if ended.rounds_before == done:
        return f"All {done} rounds are there already{reached}: {folder}"
    return f"Finished {done} rounds{reached}: {folder}"
