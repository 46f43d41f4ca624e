"""What is written down of each round, and what becomes of a run: one definition for all who ask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedadmm.core.metrics import ACCURACY, Metric, metric_named

if TYPE_CHECKING:
    from fedadmm.config.experiment import Experiment
    from fedadmm.core.engine import RoundTime
    from fedadmm.core.round import RoundSummary

# Keys that most runs have no use for, each with the value at which it is left out of rounds.jsonl.
CLOCK_KEYS = ("simulated_seconds", "mean_staleness", "max_staleness")
NOTHING: dict[str, Any] = {"lost": (), "silent": (), "oversized": (), **dict.fromkeys(CLOCK_KEYS)}
CLIENT_KEYS = ("clients", "refused", "lost", "silent", "oversized")  # that list clients


@dataclass(frozen=True)
class Record:
    """One round: a line of rounds.jsonl."""

    round: int  # counted from 1
    accuracy: float | None  # on the test examples
    loss: float | None  # on the test examples
    client_loss: float | None  # weighted mean training loss of the round's clients
    clients: tuple[int, ...]  # whose uploads were applied
    refused: tuple[int, ...]  # whose uploads were not finite
    steps: int
    gradient_evaluations: int
    bytes_up: int
    bytes_down: int
    seconds: float
    lost: tuple[int, ...] = ()  # who was asked, and whose answer did not come in time
    # The user's own, the distance to the optimum, a certificate, and what the clients achieved.
    metrics: dict[str, float | None] = field(default_factory=dict)
    silent: tuple[int, ...] = ()  # who computed, and sent nothing that arrived
    oversized: tuple[int, ...] = ()  # whose uploads were applied, and over a million times as long as the model
    simulated_seconds: float | None = None  # that the round lasted, where there is a [clock]
    mean_staleness: float | None = None  # updates that its uploads missed, where the server is asynchronous
    max_staleness: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a plain table; the user's metrics stand beside ours, and some keys only where they say something."""
        table = dict(vars(self))
        metrics: dict[str, Any] = table.pop("metrics")
        for key, nothing in NOTHING.items():
            if table[key] == nothing:
                del table[key]
        return table | metrics

    def value(self, key: str) -> float | None:
        """Return a number of the round by its key in rounds.jsonl, None where the round has none."""
        found: float | None = vars(self)[key] if key in NUMBER_KEYS else self.metrics.get(key)
        return found

    def number(self, key: str) -> float:
        """Return a number of the round by its key, NaN where the round has none."""
        value = self.value(key)
        return math.nan if value is None else value

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Record:
        """Return the record that `to_json` made a table of."""
        table = {**NOTHING, **table}
        own = {key: table[key] for key in cls.__dataclass_fields__ if key != "metrics"}
        own |= {key: tuple(own[key]) for key in CLIENT_KEYS}
        return cls(**own, metrics={key: table[key] for key in table if key not in own})

    @classmethod
    def of(
        cls,
        round: int,
        summary: RoundSummary,
        scores: dict[str, float],
        *,
        seconds: float,
        lost: tuple[int, ...] = (),
        took: RoundTime | None = None,
    ) -> Record:
        """Return the record of a round from what happened and what the evaluation gave."""
        happened = summary._asdict()
        numbers = _finite(scores | happened.pop("achieved"))
        return cls(
            round=round,
            accuracy=numbers.pop("accuracy", None),
            loss=numbers.pop("loss", None),
            **happened | _finite({"client_loss": summary.client_loss}),
            **({} if took is None else {key: getattr(took, key) for key in CLOCK_KEYS}),
            seconds=seconds,
            lost=lost,
            metrics=numbers,
        )


def _finite(numbers: Mapping[str, float | None]) -> dict[str, float | None]:
    return {key: None if value is None or not math.isfinite(value) else value for key, value in numbers.items()}


NUMBER_KEYS = {key for key in Record.__dataclass_fields__ if key not in (*CLIENT_KEYS, "metrics")}

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
