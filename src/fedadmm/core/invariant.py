"""What a server's state promises of its clients' states, so that a store can be held to it."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch


class Books(NamedTuple):
    """A vector of the server's that is, up to rounding, a weighted mean of what the clients keep."""

    name: str
    held: torch.Tensor
    share: Callable[[Any], torch.Tensor]  # of a client, given its state
    unseen: torch.Tensor | None  # the share of a client that was never applied; None: the mean is over the seen


def imbalance(books: Books, states: Iterable[tuple[float, Any]], *, registered: float) -> float:
    """Return the largest gap between what the server holds and the mean, relative to the largest share.

    `states` are those of the clients seen, with their weights; `registered` is the weight of all clients.
    """
    total = torch.zeros_like(books.held, dtype=torch.float64)
    weight, largest = 0.0, float(books.held.abs().max())
    for own, state in states:
        share = books.share(state)
        total.add_(share, alpha=own)
        weight += own
        largest = max(largest, float(share.abs().max()))
    if books.unseen is not None:
        total.add_(books.unseen, alpha=registered - weight)
        weight = registered
    if not weight or not largest:
        return 0.0
    return float((books.held - total / weight).abs().max()) / largest
