"""Small federations on which an algorithm is tried: rounds with any clients in any order, through the serial engine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Message, Vector
from fedadmm.core.engine import Task
from fedadmm.core.round import Assignment, Buffers, ClientResult, RoundSummary, ServerCheckpoint, norm_limit, run_round
from fedadmm.core.transport import Transport
from fedadmm.engine.serial import SerialEngine
from fedadmm.state.memory import MemoryStore
from fedadmm.studies.theory.quadratics import NO_BUFFERS, heterogeneous

NUM_CLIENTS = 5


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
        number, max_norm = self.checkpoint.round + 1, self.max_norm
        visits = self.engine.run(
            self.algorithm.download(self.checkpoint.server),
            buffers=self.checkpoint.buffers,
            assignments=[
                Assignment(client, number, 1, last_round=self.store.round_of(client), max_norm=max_norm)
                for client in clients
            ],
        )
        return sorted(visits, key=lambda visit: visit.client)

    @property
    def max_norm(self) -> float:
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


@dataclass(frozen=True)
class World:
    """A task with its initial model."""

    task: Any  # a Task, as far as its problems go
    theta: Vector
    buffers: Buffers
    poison: Callable[[int], object]  # from now on this client's answers are not finite

    def play(
        self, algorithm: AnyAlgorithm, *, weights: Sequence[float] | None = None, transport: Transport | None = None
    ) -> Play:
        """Return a federation of this world's clients, before round 1."""
        return Play(
            algorithm,
            self.task,
            self.theta.clone(),
            num_clients=NUM_CLIENTS,
            weights=weights,
            buffers=Buffers(*(part.clone() for part in self.buffers)),
            transport=transport,
        )


def quadratic_world() -> World:
    """Return quadratics in three dimensions, solved by four gradient steps."""
    task = heterogeneous(NUM_CLIENTS, 3, num_steps=4, learning_rate=0.2)
    return World(
        task,
        torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64),
        NO_BUFFERS,
        lambda client: task.targets[client].fill_(torch.nan),
    )


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
