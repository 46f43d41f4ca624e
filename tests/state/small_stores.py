"""Stores with a few small states, and what they should hold."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.engine import Store
from fedadmm.core.round import Buffers, ServerCheckpoint
from fedadmm.state.disk import DiskStore


class Server(NamedTuple):
    theta: Vector


class Client(NamedTuple):
    w: Vector
    y: Vector
    rho: float


IDENTITY = {"experiment": "0123456789"}
INITIAL = torch.arange(4.0)


def disk_store(folder: Path, **options: Any) -> DiskStore:
    """Open the store in a folder, or make it."""
    settings = {"types": (Server, Client), "identity": IDENTITY, "initial": INITIAL} | options
    return DiskStore(folder, **settings)


def a_state(client: int, round: int, *, size: int | None = None) -> Client:
    """Return a state that no other client and round has; those of odd clients take pages of their own."""
    generator = torch.Generator().manual_seed(1000 * round + client)
    size = (700 if client % 2 else 5) if size is None else size
    return Client(torch.randn(size, generator=generator), torch.randn(size, generator=generator), 0.1 * round)


def a_checkpoint(round: int, *, seen: float = 0.0) -> ServerCheckpoint:
    """Return the server after a round."""
    theta = torch.randn(40, generator=torch.Generator().manual_seed(round))
    return ServerCheckpoint(round, Server(theta), Buffers(theta[:2] * 2, torch.tensor([round])), seen)


def play(store: Store, rounds: list[list[int]], *, first: int = 1) -> None:
    """Commit rounds with these clients."""
    for number, clients in enumerate(rounds, start=first):
        for client in clients:
            store.stage(number, client, a_state(client, number))
        store.commit(
            a_checkpoint(number), clients=clients, record={"round": number, "clients": clients, "x": 1 / number}
        )


def content(store: Store) -> tuple[Any, ...]:
    """Return all that a store holds, as plain values that compare to the bit."""
    checkpoint = store.checkpoint()
    return (
        None
        if checkpoint is None
        else plain((*checkpoint[:1], *checkpoint.server, *checkpoint.buffers, checkpoint.seen)),
        store.records(),
        {client: plain(store.get(client)) for client in store},
        len(store),
    )


def plain(message: Message | None) -> tuple[Any, ...]:
    """Return a message's fields, vectors as bytes."""
    assert message is not None
    return tuple(
        (str(field.dtype), field.numpy().tobytes()) if isinstance(field, torch.Tensor) else field for field in message
    )
