"""What is written down of each round."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedadmm.core.round import Tally


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
    metrics: dict[str, float | None] = field(default_factory=dict)  # the user's own

    def to_json(self) -> dict[str, Any]:
        """Return a plain table; the user's metrics stand beside ours, and who was lost only where somebody was."""
        table: dict[str, Any] = asdict(self)
        metrics: dict[str, Any] = table.pop("metrics")
        if not self.lost:
            del table["lost"]
        return table | metrics

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> "Record":
        """Return the record that `to_json` made a table of."""
        table = {"lost": (), **table}
        own = {key: table[key] for key in cls.__dataclass_fields__ if key != "metrics"}
        own |= {key: tuple(own[key]) for key in ("clients", "refused", "lost")}
        return cls(**own, metrics={key: table[key] for key in table if key not in own})

    @classmethod
    def of(
        cls,
        round: int,
        tally: Tally,
        scores: dict[str, float],
        *,
        seconds: float,
        lost: tuple[int, ...] = (),
    ) -> "Record":
        """Return the record of a round from what happened and what the evaluation gave."""
        numbers = {name: value if math.isfinite(value) else None for name, value in scores.items()}
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
            metrics=numbers,
        )


def round_of_arrival(records: Sequence[Record], target: float | None) -> int | None:
    """Return the first round whose accuracy reached the target, None if none did."""
    if target is None:
        return None
    return next((r.round for r in records if r.accuracy is not None and r.accuracy >= target), None)


def has_diverged(records: Sequence[Record]) -> bool:
    """Return whether the last round refused every client."""
    return bool(records) and bool(records[-1].refused) and not records[-1].clients
