"""What runs the clients of a round, and where their states live: the protocols of engine, task and store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from fedadmm.core.algorithm import AnyAlgorithm, Message, Vector
from fedadmm.core.state_parts import HeldBack, Personal, with_part

if TYPE_CHECKING:
    import torch

    from fedadmm.core.round import Assignment, Buffers, ClientResult, Problem, ServerCheckpoint

PersonalOf = Callable[[int], Personal | None]  # of a client: the parts of the model that it keeps
EngineName = Literal["workers", "serial", "stacked", "ray", "auto"]


class Scores(NamedTuple):
    """The loss and the metrics of some examples: each as a sum, and what the sum is divided by."""

    sums: dict[str, float]
    divisors: dict[str, float]


class Task(Protocol):
    """What the clients of a run work on."""

    @property
    def personal(self) -> Personal | None:
        """The parts of the model that every client begins with and keeps for itself, None if there are none."""

    @property
    def num_parts(self) -> int:
        """The number of parts in which the test examples are evaluated."""

    def problem(self, assignment: Assignment, *, buffers: Buffers) -> Problem:
        """Return a client's problem in a round, on a model with these buffers."""

    def cost(self, assignment: Assignment) -> float:
        """Return how much work an assignment is, in any unit."""

    def buffers(self) -> Buffers:
        """Return buffers of the model's form."""

    def evaluate_part(self, part: int, theta: Vector, *, buffers: Buffers) -> Scores:
        """Return loss and metrics on a part of the test examples."""

    def evaluate_client(
        self, client: int, theta: Vector, *, buffers: Buffers, personal: Personal | None = None
    ) -> dict[str, float]:
        """Return loss and metrics on a client's own examples, with the parts of the model that it keeps."""

    def private(self) -> Task:
        """Return a task that shares nothing it writes to, for another process."""


class RoundTime(NamedTuple):
    """What a round took in simulated time; all is None where no clock is simulated."""

    simulated_seconds: float | None = None
    mean_staleness: float | None = None  # updates of the server that the uploads missed, where it is asynchronous
    max_staleness: int | None = None
    in_use: tuple[int, ...] = ()  # the earlier rounds whose theta some clients still work on


class Engine(Protocol):
    """Runs client updates: assignments and a download go in, the clients' results come out, in the same order.

    A simulated deadline, a faulty network and an asynchronous server are engines around engines (network/).
    """

    took: RoundTime  # by the last round whose results were all taken

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of the assigned clients, in the order of the assignments, each as soon as it is there."""

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples; nothing where there are none."""

    def evaluate_clients(
        self, download: Any, *, buffers: Buffers, clients: Sequence[int], personal_of: PersonalOf
    ) -> list[dict[str, float]]:
        """Return loss and metrics on the own examples of each of these clients, with the parts that it keeps."""

    def close(self) -> None:
        """End what was started."""


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class StateTypes(NamedTuple):
    """The NamedTuples of an algorithm that a store keeps."""

    server: type[Any]
    client: type[Any]


def state_types(algorithm: AnyAlgorithm, *, personal: bool = False, held_back: bool = False) -> StateTypes:
    """Return the types of an algorithm's server and clients.

    personal: the clients keep parts of the model. held_back: they keep what was left out of their uploads.
    """
    import torch  # a store can be described without it

    theta = torch.zeros(1)
    client: type[Any] = type(algorithm.init_client(theta))
    for kind, is_kept in ((Personal, personal), (HeldBack, held_back)):
        client = with_part(client, kind) if is_kept else client
    return StateTypes(type(algorithm.init_server(theta)), client)


class StatesOnDisk(Protocol):
    """Client states that worker processes read and write themselves; it can be pickled."""

    def own(self) -> StatesOnDisk:
        """Return the states as this process may use them."""

    def get_version(self, client: int, round: int) -> Message:
        """Return the state that a client had after its update in a round."""

    def stage(self, round: int, client: int, state: Message) -> None:
        """Write a state ahead of its round's commit."""


class Store(Protocol):
    """Client states and the server's checkpoint; a round is one transaction.

    A state is written ahead with `stage` while others still train, and counts once its round is committed.
    A client that was never committed costs nothing.
    """

    @property
    def float_type(self) -> torch.dtype | None:
        """What the float32 vectors of a state are kept as, None for what they are."""

    @property
    def file(self) -> StatesOnDisk | None:
        """What worker processes may open for themselves; None where the states are in this process alone."""

    def get(self, client: int) -> Message | None:
        """Return a client's committed state, None if it has none."""

    def get_many(self, clients: Sequence[int]) -> list[Message | None]:
        """Return the committed states of several clients, None for who has none."""

    def round_of(self, client: int) -> int | None:
        """Return the round in which a client's state was committed, None if it has none."""

    def stage(self, round: int, client: int, state: Message) -> None:
        """Write a state ahead; it is dropped unless `round` is committed with this client."""

    def stage_many(self, round: int, states: Mapping[int, Message]) -> None:
        """Write states ahead, client by client, all of them at once; a state in memory is kept as it is."""

    def staged(self, round: int, client: int) -> Message:
        """Return a state that was written ahead for a round that is not committed yet."""

    def commit(
        self, checkpoint: ServerCheckpoint, *, clients: Sequence[int], record: dict[str, Any], keep: Iterable[int] = ()
    ) -> None:
        """Make a round count: the staged states of these clients, the checkpoint after it, and its record.

        keep: the earlier rounds whose checkpoint is still needed.
        """

    def drop(self, round: int, clients: Sequence[int]) -> None:
        """Forget states that were written ahead for a round that was committed without these clients."""

    def checkpoint(self) -> ServerCheckpoint | None:
        """Return the checkpoint after the last committed round, None before the first."""

    def older_checkpoints(self) -> dict[int, ServerCheckpoint]:
        """Return the checkpoint of the earlier rounds that was to be kept."""

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the committed rounds."""

    def __len__(self) -> int:
        """Return the number of clients with a state."""

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids of the clients with a state, rising."""
