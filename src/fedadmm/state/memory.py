"""Client states in memory, for runs without a folder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch

from fedadmm.core.algorithm import Message
from fedadmm.core.round import ServerCheckpoint
from fedadmm.state.encoding import narrowed


class MemoryStore:
    """A store that ends with its process; `float_type` narrows the float32 vectors of a state."""

    file = None  # no other process can read the states

    def __init__(self, *, float_type: torch.dtype | None = None) -> None:
        self.float_type = float_type
        self._states: dict[int, Message] = {}
        self._rounds: dict[int, int] = {}  # of the states
        self._staged: dict[int, Message] = {}
        self._checkpoint: ServerCheckpoint | None = None
        self._older: dict[int, ServerCheckpoint] = {}
        self._records: list[dict[str, Any]] = []

    def copy(self) -> "MemoryStore":
        """Return a store that goes on from here by itself; states are values, which nobody changes."""
        other = MemoryStore(float_type=self.float_type)
        for name, value in vars(self).items():
            setattr(other, name, copy(value))
        return other

    def get(self, client: int) -> Message | None:
        """Return a client's committed state, None if it has none."""
        state = self._states.get(client)
        return None if state is None else self._widened(state)

    def get_many(self, clients: Sequence[int]) -> list[Message | None]:
        """Return the committed states of several clients, None for who has none."""
        return [self.get(client) for client in clients]

    def staged(self, round: int, client: int) -> Message:
        """Return a state that is held for a round."""
        return self._widened(self._staged[client])

    def _widened(self, state: Message) -> Message:
        if self.float_type is None:
            return state
        return type(state)(*[f.float() if getattr(f, "dtype", None) == self.float_type else f for f in state])

    def round_of(self, client: int) -> int | None:
        """Return the round in which a client's state was committed, None if it has none."""
        return self._rounds.get(client)

    def stage(self, round: int, client: int, state: Message) -> None:
        """Hold a state until its round is committed."""
        if self.float_type is not None:
            state = type(state)(*[narrowed(field, self.float_type) for field in state])
        self._staged[client] = state

    def stage_many(self, round: int, states: Mapping[int, Message]) -> None:
        """Hold states until their round is committed."""
        for client, state in states.items():
            self.stage(round, client, state)

    def commit(
        self, checkpoint: ServerCheckpoint, *, clients: Sequence[int], record: dict[str, Any], keep: Iterable[int] = ()
    ) -> None:
        """Make the staged states of these clients count, and drop the others; nobody will ask for earlier rounds."""
        self._states.update((client, self._staged[client]) for client in clients)
        self._rounds.update(dict.fromkeys(clients, checkpoint.round))
        self._staged.clear()
        last = {} if self._checkpoint is None else {self._checkpoint.round: self._checkpoint}
        self._older = {round: kept for round, kept in (self._older | last).items() if round in set(keep)}
        self._checkpoint = checkpoint
        self._records.append(record)

    def drop(self, round: int, clients: Sequence[int]) -> None:
        """Do nothing: the commit has dropped them."""

    def checkpoint(self) -> ServerCheckpoint | None:
        """Return the checkpoint after the last committed round."""
        return self._checkpoint

    def older_checkpoints(self) -> dict[int, ServerCheckpoint]:
        """Return the checkpoint of the earlier rounds that was to be kept."""
        return dict(self._older)

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the committed rounds."""
        return list(self._records)

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._states))
