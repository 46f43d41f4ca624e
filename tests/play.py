"""Rounds played through run_round, the serial engine and a store in memory, with any clients in any order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from fedadmm.core.algorithm import Algorithm, AnyAlgorithm, Message, Turnout, Vector
from fedadmm.core.engine import Task
from fedadmm.core.round import Assignment, Buffers, ClientResult, RoundSummary, ServerCheckpoint, norm_limit, run_round
from fedadmm.core.transport import Transport
from fedadmm.engine.serial import SerialEngine
from fedadmm.state.memory import MemoryStore
from quadratics import NO_BUFFERS


class Play:
    """A federation that plays the rounds it is told to."""

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        task: Task,
        theta: Vector,
        *,
        num_clients: int,
        weights: Sequence[float] | None = None,
        buffers: Buffers = NO_BUFFERS,
        transport: Transport | None = None,
    ) -> None:
        self.algorithm, self.num_clients = algorithm, num_clients
        self.weights = [1.0] * num_clients if weights is None else [float(weight) for weight in weights]
        self.checkpoint = ServerCheckpoint(0, algorithm.init_server(theta), buffers, 0.0)
        self.store = MemoryStore()
        self.engine = SerialEngine(algorithm, task, self.store, initial=theta, transport=transport)
        self.transport = transport

    def given(self, *, server: Any, states: Mapping[int, Message], round: int = 0, seen: float = 0.0) -> "Play":
        """Begin in the middle: after `round` rounds, with this server and these client states."""
        for client, state in states.items():
            self.store.stage(round, client, state)
        self.checkpoint = ServerCheckpoint(round, server, self.checkpoint.buffers, seen)
        self.store.commit(self.checkpoint, clients=list(states), record={})
        return self

    def visits(self, clients: Iterable[int]) -> list[ClientResult]:
        """Run the clients of the next round in the order given, and return their answers in rising order."""
        number = self.checkpoint.round + 1
        visits = self.engine.run(
            self.algorithm.download(self.checkpoint.server),
            buffers=self.checkpoint.buffers,
            assignments=[
                Assignment(client, number, 1, last_round=self.store.round_of(client), largest=self.largest)
                for client in clients
            ],
        )
        return sorted(visits, key=lambda visit: visit.client)

    @property
    def largest(self) -> float:
        """The norm above which uploads are refused."""
        return norm_limit(None, theta=self.algorithm.download(self.checkpoint.server).theta, medians=())

    def round(self, clients: Iterable[int]) -> RoundSummary:
        """Play one round and commit it."""
        clients = list(clients)
        self.checkpoint, summary = run_round(
            self.algorithm,
            self.checkpoint,
            self.visits(clients),
            weight=self.weights.__getitem__,
            registered=sum(self.weights),
            transport=self.transport,
            asked=clients,
        )
        self.store.commit(self.checkpoint, clients=summary.clients, record={})
        return summary

    def rounds(self, rounds: Iterable[Iterable[int]]) -> "Play":
        """Play one round for each set of clients."""
        for clients in rounds:
            self.round(clients)
        return self

    @property
    def theta(self) -> Vector:
        """The server's model."""
        theta: Vector = self.checkpoint.server.theta
        return theta

    @property
    def states(self) -> dict[int, Any]:
        """The states of the clients seen."""
        return {client: self.store.get(client) for client in self.store}


class Watched(Algorithm[Any, Any, Any]):
    """An algorithm that behaves as another, and lets a test watch what goes in and comes out."""

    inner: AnyAlgorithm
    on_client: Callable[..., None] = lambda **_: None
    on_server: Callable[[Turnout], None] = lambda _: None

    @property
    def newcomer(self) -> Any:
        """The other's."""
        return self.inner.newcomer

    def init_server(self, theta: Vector) -> Any:
        """Return the other's server."""
        return self.inner.init_server(theta)

    def init_client(self, theta: Vector) -> Any:
        """Return the other's client."""
        return self.inner.init_client(theta)

    def download(self, server: Any) -> Any:
        """Return the other's download."""
        return self.inner.download(server)

    def client_update(self, server: Any, client: Any, problem: Any) -> tuple[Any, Any]:
        """Update as the other does, and tell the watcher."""
        upload, after = self.inner.client_update(server, client, problem)
        self.on_client(server=server, before=client, after=after, upload=upload, problem=problem)
        return upload, after

    def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
        """Update as the other does, and tell the watcher."""
        self.on_server(turnout)
        return self.inner.server_update(server, mean, turnout)


def copied(message: Message) -> tuple[Any, ...]:
    """Return the fields of a message as they are now."""
    return tuple(field.clone() if isinstance(field, torch.Tensor) else field for field in message)


def identical(left: Any, right: Any) -> bool:
    """Return whether two values are the same to the bit; NaN is itself."""
    if isinstance(left, torch.Tensor):
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        return left.contiguous().view(torch.uint8).equal(right.contiguous().view(torch.uint8))
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(identical(left[key], right[key]) for key in left)
    return bool(left == right)
