"""A server and clients that share nothing but messages, over a network on which everything can go wrong."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedadmm.core.algorithm import AnyAlgorithm, Message
from fedadmm.core.delivery import NONE, Collection, Journal, LateError, Reply, Request, answered, settled
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment, Buffers, ClientResult, ServerCheckpoint, run_client, run_round
from worlds import NUM_CLIENTS, World


class Mail(NamedTuple):
    """A request with what a client downloads."""

    request: Request
    round: int
    download: Any
    buffers: Buffers
    last_round: int | None  # in which the client's last update counted


@dataclass(frozen=True)
class Disk:
    """What a client has on its disk: its journal, and the states that the journal names."""

    journal: Journal = field(default_factory=Journal)
    states: dict[int, Message] = field(default_factory=dict)


class Checkpoint(NamedTuple):
    """What the server has on its disk."""

    checkpoint: ServerCheckpoint
    books: dict[int, int]
    history: tuple[tuple[int, ...], ...]  # the clients that each round applied


class Federation:
    """Clients of a small world, each with a disk of its own, and a server with its checkpoints."""

    def __init__(self, algorithm: AnyAlgorithm, world: World) -> None:
        self._algorithm, self._world, self._number = algorithm, world, 0
        start = ServerCheckpoint(0, algorithm.init_server(world.theta), world.buffers, 0.0)
        self.server = Checkpoint(start, {}, ())
        self.checkpoints = [self.server]
        self.disks = [Disk() for _ in range(NUM_CLIENTS)]
        self.refusals: set[int] = set()
        self._collection = Collection(0, clients=())

    def open_round(self, clients: Iterable[int]) -> list[Mail]:
        """Begin a round under a number that was never used, and return its requests."""
        self._number += 1
        checkpoint, books, history = self.server
        clients = sorted(clients)
        self._collection = Collection(self._number, clients=clients)
        download = self._algorithm.download(checkpoint.server)
        return [
            Mail(
                Request(client, self._number, books.get(client, NONE)),
                checkpoint.round + 1,
                download,
                checkpoint.buffers,
                max((round for round, applied in enumerate(history, start=1) if client in applied), default=None),
            )
            for client in clients
        ]

    def answer(self, mail: Mail) -> list[tuple[Reply, ClientResult]]:
        """Let a client work on a request and write its disk; no reply if it is late, or refused."""
        client, number, *_ = mail.request
        disk = self.disks[client]
        try:
            journal = settled(disk.journal, mail.request)
        except LateError:
            return []
        except InputError:
            self.refusals.add(client)
            return []
        state = disk.states.get(journal.acknowledged)
        assignment = Assignment(client, mail.round, 1, last_round=mail.last_round)
        visit, new = run_client(
            self._algorithm,
            mail.download,
            assignment,
            state=state,
            initial=self._world.theta,
            problem=self._world.task.problem(assignment, buffers=mail.buffers),
        )
        kept = {} if state is None else {journal.acknowledged: state}
        self.disks[client] = Disk(answered(disk.journal, mail.request), {**kept, number: new})
        return [(Reply(client, number), visit)]

    def close_round(self, arrived: Iterable[tuple[Reply, ClientResult]]) -> None:
        """Apply the replies that count, and write the checkpoint."""
        visits = [visit for reply, visit in arrived if self._collection.counts(reply)]
        checkpoint, summary = run_round(
            self._algorithm,
            self.server.checkpoint,
            sorted(visits, key=lambda visit: visit.client),
            weight=lambda client: 1.0,
            registered=float(NUM_CLIENTS),
        )
        books = self.server.books | dict.fromkeys(summary.clients, self._number)
        self.server = Checkpoint(checkpoint, books, (*self.server.history, summary.clients))
        self.checkpoints.append(self.server)

    def restore_server(self, rounds_back: int) -> None:
        """Go back to an older checkpoint."""
        del self.checkpoints[max(1, len(self.checkpoints) - rounds_back) :]
        self.server = self.checkpoints[-1]

    def state(self, client: int) -> Message | None:
        """Return the state from which a client would work if it were asked now; it may refuse."""
        disk = self.disks[client]
        request = Request(client, self._number + 1, self.server.books.get(client, NONE))
        return disk.states.get(settled(disk.journal, request).acknowledged)
