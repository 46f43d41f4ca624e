"""One round worked out by hand, from states that are not zero.

Two of four clients take part; a third was seen before. theta = 1, or what clients get is.
    client 0: f(w) = 1/2 (w - 3)^2      client 1: f(w) = 3/2 w^2
With rho = 2 the exact solution of h/2 (w - a)^2 + y w + (w - theta)^2 is w = (h a - y + 2 theta) / (h + 2).
"""

from typing import Any, NamedTuple

import pytest
import torch

from fedadmm.core.algorithm import Algorithm
from play import Play
from quadratics import on_a_line


def v(value: float) -> torch.Tensor:
    """Return a vector of one number."""
    return torch.tensor([value], dtype=torch.float64)


class Hand(NamedTuple):
    """A round: from where, with which solver, and what comes out."""

    algorithm: Algorithm
    server: tuple[Any, ...]
    states: tuple[tuple[Any, ...], tuple[Any, ...]]  # of clients 0 and 1
    uploads: tuple[tuple[float, ...], tuple[float, ...]]
    states_after: tuple[tuple[float, ...], tuple[float, ...]]
    server_after: tuple[float, ...]
    round: int = 1
    num_steps: int | None = None  # None: exact
    learning_rate: float = 0.5


def check_hand(hand: Hand) -> None:
    """Play the round, and compare uploads, states and server with the numbers."""
    task = on_a_line([1.0, 3.0], [3.0, 0.0], num_steps=hand.num_steps, learning_rate=hand.learning_rate)
    play = Play(hand.algorithm, task, v(1.0), num_clients=4).given(
        server=hand.server, states=dict(enumerate(hand.states)), round=hand.round - 1, seen=3.0
    )
    for visit, upload in zip(play.visits([0, 1]), hand.uploads, strict=True):
        assert _near(visit.upload, upload)
    play.round([0, 1])
    for client, after in enumerate(hand.states_after):
        assert _near(play.states[client], after)
    assert _near(play.checkpoint.server, hand.server_after)
    assert (play.checkpoint.round, play.checkpoint.seen) == (hand.round, 3.0)


def _near(message: Any, numbers: tuple[float, ...]) -> bool:
    return tuple(map(float, message)) == pytest.approx(numbers, abs=1e-14)
