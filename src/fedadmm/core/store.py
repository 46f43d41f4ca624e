"""Where client states live, and what makes a round count."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fedadmm.core.algorithm import AnyAlgorithm, Message
from fedadmm.core.round import ServerCheckpoint

if TYPE_CHECKING:
    import torch


class StateTypes(NamedTuple):
    """The NamedTuples of an algorithm that a store keeps."""

    server: type[Any]
    client: type[Any]


def state_types(algorithm: AnyAlgorithm) -> StateTypes:
    """Return the types of an algorithm's server and clients."""
    import torch  # a store can be described without it

    theta = torch.zeros(1)
    return StateTypes(type(algorithm.init_server(theta)), type(algorithm.init_client(theta)))


class StatesOnDisk(Protocol):
    """Client states that worker processes read and write themselves; it can be pickled."""

    def own(self) -> "StatesOnDisk":
        """Return the states as this process may use them."""
        ...

    def get_version(self, client: int, round: int) -> Message:
        """Return the state that a client had after its visit in a round."""
        ...

    def stage(self, round: int, client: int, state: Message) -> None:
        """Write a state ahead of its round's commit."""
        ...


class Store(Protocol):
    """Client states and the server's checkpoint; a round is one transaction.

    A state is written ahead with `stage` while others still train, and counts once its round is committed.
    A client that was never committed costs nothing.
    """

    @property
    def float_type(self) -> "torch.dtype | None":
        """What the float32 vectors of a state are kept as, None for what they are."""
        ...

    @property
    def file(self) -> StatesOnDisk | None:
        """What worker processes may open for themselves; None where the states are in this process alone."""
        ...

    def get(self, client: int) -> Message | None:
        """Return a client's committed state, None if it has none."""
        ...

    def round_of(self, client: int) -> int | None:
        """Return the round in which a client's state was committed, None if it has none."""
        ...

    def stage(self, round: int, client: int, state: Message) -> None:
        """Write a state ahead; it is dropped unless `round` is committed with this client."""
        ...

    def commit(
        self,
        checkpoint: ServerCheckpoint,
        *,
        clients: Sequence[int],
        record: dict[str, Any],
        keep: Collection[int] = (),
    ) -> None:
        """Make a round count: the staged states of these clients, the checkpoint after it, and its record.

        keep: the earlier rounds whose checkpoint is still needed.
        """
        ...

    def drop(self, round: int, clients: Sequence[int]) -> None:
        """Forget states that were written ahead for a round that was committed without these clients."""
        ...

    def checkpoint(self) -> ServerCheckpoint | None:
        """Return the checkpoint after the last committed round, None before the first."""
        ...

    def older_checkpoints(self) -> dict[int, ServerCheckpoint]:
        """Return the checkpoint of the earlier rounds that was to be kept."""
        ...

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the committed rounds."""
        ...

    def __len__(self) -> int:
        """Return the number of clients with a state."""
        ...

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids of the clients with a state, rising."""
        ...
