"""Who computes in a round, and which of them communicate: all do both, unless an algorithm has silence (FedPD)."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fedadmm.core.algorithm import Algorithm
from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream


def who_computes(
    algorithm: Algorithm[Any, Any, Any], selected: Iterable[int], *, num_clients: int, seed: int, round: int
) -> list[tuple[int, bool]]:
    """Return the clients that compute in a round, ids rising, and whether each sends what it made."""
    if algorithm.silence is None:
        return [(int(client), True) for client in selected]
    nobody = stream(seed, "silence", round).random() < algorithm.silence
    senders = set() if nobody else set(map(int, selected))
    return [(client, client in senders) for client in range(num_clients)]


def hearing(
    algorithm: Algorithm[Any, Any, Any], assignments: Sequence[Assignment], *, applied: Collection[int] | None
) -> Sequence[Assignment]:
    """Return the assignments with who has heard of theta since its last update: whose update of the last round counted.

    `applied` are the clients of the last round, None before the first: all know theta^0.
    """
    if algorithm.silence is None or applied is None:
        return assignments
    heard = set(applied)
    return [assignment._replace(hears=assignment.client in heard) for assignment in assignments]
