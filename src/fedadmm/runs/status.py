"""What becomes of a run: one definition, for the run itself, its report and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedadmm.core.metrics import ACCURACY, Metric, metric_named

if TYPE_CHECKING:
    from fedadmm.config.experiment import Experiment
    from fedadmm.runs.records import Record

# stopped: rounds are left. collapsed: all rounds were played, and the last is worse than the first.
Status = Literal["finished", "stopped", "diverged", "collapsed"]
EXIT_CODES: dict[Status, int] = {"finished": 0, "collapsed": 0, "stopped": 130, "diverged": 1}
FEWEST_TO_COLLAPSE = 10  # rounds with a score: in a shorter run a fall says little


@dataclass(frozen=True)
class Goal:
    """How far a run goes, and what it is judged by."""

    rounds: int
    metric: Metric = ACCURACY
    target: float | None = None
    stop_at_target: bool = False

    @classmethod
    def of(cls, experiment: Experiment) -> Goal:
        """Return an experiment's goal."""
        metric = metric_named(experiment.metric)
        return cls(experiment.rounds, metric, experiment.target, experiment.stop_at_target)

    def arrival(self, records: Sequence[Record]) -> int | None:
        """Return the first round that reached the target, None if none did."""
        return self.metric.arrival(records, self.target)

    def has_ended(self, records: Sequence[Record]) -> bool:
        """Return whether no round is left: all were played, the target it stops at was reached, or it diverged."""
        if len(records) >= self.rounds or has_diverged(records):
            return True
        return self.stop_at_target and self.arrival(records) is not None

    def status(self, records: Sequence[Record]) -> Status:
        """Return what became of a run with these rounds."""
        if has_diverged(records):
            return "diverged"
        if not self.has_ended(records):
            return "stopped"
        scores = self.metric.scores(records)
        collapsed = len(scores) >= FEWEST_TO_COLLAPSE and not self.metric.reached(scores[-1], target=scores[0])
        return "collapsed" if collapsed else "finished"


def has_diverged(records: Sequence[Record]) -> bool:
    """Return whether the last round refused every client; a silent one computed, and was not refused."""
    if not records:
        return False
    last = records[-1]
    return bool(last.refused) and not last.clients and not last.silent
