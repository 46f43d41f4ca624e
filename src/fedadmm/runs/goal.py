"""How far a run goes, what it is judged by, and what became of it: one definition for all; it needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedadmm.core.metrics import Metric, default_metric, metric_named
from fedadmm.runs.records import Record

if TYPE_CHECKING:
    from fedadmm.config.experiment import Experiment

# stopped: rounds are left. collapsed: all rounds were played, and the last is worse than the first.
Status = Literal["finished", "stopped", "diverged", "collapsed"]
EXIT_CODES: dict[Status, int] = {"finished": 0, "collapsed": 0, "stopped": 130, "diverged": 1}
FEWEST_TO_COLLAPSE = 10  # rounds with a score: in a shorter run a fall says little


@dataclass(frozen=True)
class Goal:
    """How far a run goes, and what it is judged by."""

    rounds: int
    metric: Metric | None = None  # None: the test accuracy, or the loss where there is only that
    target: float | None = None
    stop_at_target: bool = False
    patience: int | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> Goal:
        """Return an experiment's goal."""
        return cls.from_table({key: getattr(experiment, key) for key in type(experiment).model_fields})

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Goal:
        """Return the goal in an experiment's table, which may be of a version that lacks some keys."""
        name, target, patience = (table.get(key) for key in ("metric", "target", "patience"))
        metric = None if name is None else metric_named(name, table.get("direction"))
        return cls(table["rounds"], metric, target, bool(table.get("stop_at_target")), patience)

    def judge(self, records: Sequence[Record]) -> Metric:
        """Return what these rounds are judged by."""
        return default_metric(records) if self.metric is None else self.metric

    def arrival(self, records: Sequence[Record]) -> int | None:
        """Return the first round that reached the target, None if none did."""
        return self.judge(records).arrival(records, self.target)

    def has_ended(self, records: Sequence[Record]) -> bool:
        """Return whether no round is left.

        All were played, it diverged, its privacy budget is spent, its best score did not improve for too long, or it
        reached the target it stops at.
        """
        if len(records) >= self.rounds or has_diverged(records) or is_spent(records) or self._has_stalled(records):
            return True
        return self.stop_at_target and self.arrival(records) is not None

    def _has_stalled(self, records: Sequence[Record]) -> bool:
        metric = self.judge(records)
        scored = [record for record in records if metric.of(record) is not None]
        best = metric.best(metric.scores(scored))
        if self.patience is None or best is None:
            return False
        return scored[-1].round - next(r.round for r in scored if metric.of(r) == best) >= self.patience

    def status(self, records: Sequence[Record]) -> Status:
        """Return what became of a run with these rounds."""
        if has_diverged(records):
            return "diverged"
        if not self.has_ended(records):
            return "stopped"
        metric = self.judge(records)
        scores = metric.scores(records)
        collapsed = len(scores) >= FEWEST_TO_COLLAPSE and not metric.reached(scores[-1], target=scores[0])
        return "collapsed" if collapsed else "finished"


def is_spent(records: Sequence[Record]) -> bool:
    """Return whether one more round would cost more than the privacy budget."""
    return bool(records) and records[-1].budget_spent


def has_diverged(records: Sequence[Record]) -> bool:
    """Return whether the last round refused every client; a silent one computed, and was not refused."""
    if not records:
        return False
    last = records[-1]
    return bool(last.refused) and not last.clients and not last.silent


def why_it_diverged(last: Record) -> str:
    """Return what became of the updates of the round in which a run diverged."""
    return f"no client's update was {'finite' if not last.oversized else 'finite and within max_norm'}"
