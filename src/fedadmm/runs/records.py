"""What is written down of each round."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedadmm.core.round import RoundSummary
from fedadmm.network.timing import NO_CLOCK, Took

# Keys that most runs have no use for, each with the value at which it is left out of rounds.jsonl.
NOTHING: dict[str, Any] = {"lost": (), "silent": (), **NO_CLOCK._asdict()}

MetricName = Literal["accuracy", "distance"]  # what a run is judged by: high, or low


@dataclass(frozen=True)
class Record:
    """One round: a line of rounds.jsonl."""

    round: int  # counted from 1
    accuracy: float | None  # on the test examples
    loss: float | None  # on the test examples
    client_loss: float | None  # mean training loss of the round's clients
    clients: tuple[int, ...]  # whose uploads were applied
    refused: tuple[int, ...]  # whose uploads were not finite
    steps: int
    gradient_evaluations: int
    bytes_up: int
    bytes_down: int
    seconds: float
    lost: tuple[int, ...] = ()  # who was asked, and whose answer did not come in time
    metrics: dict[str, float | None] = field(
        default_factory=dict
    )  # the user's own, and what the clients achieved
    silent: tuple[int, ...] = ()  # who computed, and sent nothing that arrived
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

    def number(self, key: str) -> float:
        """Return a metric, NaN where the round has none."""
        value = self.metrics.get(key)
        return math.nan if value is None else value

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> "Record":
        """Return the record that `to_json` made a table of."""
        table = {**NOTHING, **table}
        own = {key: table[key] for key in cls.__dataclass_fields__ if key != "metrics"}
        own |= {key: tuple(own[key]) for key in ("clients", "refused", "lost", "silent")}
        return cls(**own, metrics={key: table[key] for key in table if key not in own})

    @classmethod
    def of(
        cls,
        round: int,
        tally: RoundSummary,
        scores: dict[str, float],
        *,
        seconds: float,
        lost: tuple[int, ...] = (),
        took: Took = NO_CLOCK,
    ) -> "Record":
        """Return the record of a round from what happened and what the evaluation gave."""
        values = scores | tally.achieved
        numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
        client_loss = tally.client_loss
        return cls(
            round=round,
            accuracy=numbers.pop("accuracy", None),
            loss=numbers.pop("loss", None),
            client_loss=client_loss if client_loss is not None and math.isfinite(client_loss) else None,
            clients=tally.clients,
            refused=tally.refused,
            steps=tally.steps,
            gradient_evaluations=tally.gradient_evaluations,
            bytes_up=tally.bytes_up,
            bytes_down=tally.bytes_down,
            seconds=seconds,
            lost=lost,
            silent=tally.silent,
            **took._asdict(),
            metrics=numbers,
        )


def score_of(record: Record, metric: MetricName | None = None) -> float | None:
    """Return what a round is judged by: the test accuracy, or the distance to the optimum."""
    return record.metrics.get("distance") if metric == "distance" else record.accuracy


def best_of(records: Sequence[Record], metric: MetricName | None = None) -> float | None:
    """Return the best score of some rounds, None if they have none."""
    scores = [score for record in records if (score := score_of(record, metric)) is not None]
    return (min if metric == "distance" else max)(scores, default=None)


def score_text(score: float | None, metric: MetricName | None = None) -> str:
    """Return a score with its name, such as accuracy 0.912 or distance 3.1e-05; nothing if there is none."""
    if score is None:
        return ""
    return f"distance {score:.1e}" if metric == "distance" else f"accuracy {score:.3f}"


def round_of_arrival(
    records: Sequence[Record], target: float | None, metric: MetricName | None = None
) -> int | None:
    """Return the first round whose score reached the target, None if none did."""
    if target is None:
        return None
    for record in records:
        score = score_of(record, metric)
        if score is not None and (score <= target if metric == "distance" else score >= target):
            return record.round
    return None


def has_diverged(records: Sequence[Record]) -> bool:
    """Return whether the last round refused every client."""
    if not records:
        return False
    last = records[-1]
    return bool(last.refused) and not last.clients and not last.silent
