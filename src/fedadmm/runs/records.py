"""What is written down of each round."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedadmm.core.engine import RoundTime
    from fedadmm.core.round import RoundSummary

# Keys that most runs have no use for, each with the value at which it is left out of rounds.jsonl.
CLOCK_KEYS = ("simulated_seconds", "mean_staleness", "max_staleness")
NOTHING: dict[str, Any] = {"lost": (), "silent": (), **dict.fromkeys(CLOCK_KEYS)}
CLIENT_KEYS = ("clients", "refused", "lost", "silent")  # that list clients


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
    # The user's own, the distance to the optimum, a certificate, and what the clients achieved.
    metrics: dict[str, float | None] = field(default_factory=dict)
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
        values = scores | summary.achieved
        numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
        client_loss = summary.client_loss
        return cls(
            round=round,
            accuracy=numbers.pop("accuracy", None),
            loss=numbers.pop("loss", None),
            client_loss=client_loss if client_loss is not None and math.isfinite(client_loss) else None,
            clients=summary.clients,
            refused=summary.refused,
            steps=summary.steps,
            gradient_evaluations=summary.gradient_evaluations,
            bytes_up=summary.bytes_up,
            bytes_down=summary.bytes_down,
            seconds=seconds,
            lost=lost,
            silent=summary.silent,
            **({} if took is None else {key: getattr(took, key) for key in CLOCK_KEYS}),
            metrics=numbers,
        )


NUMBER_KEYS = {key for key in Record.__dataclass_fields__ if key not in (*CLIENT_KEYS, "metrics")}
