"""Which examples the clients of a stack meet at each step: the serial engine's batches, side by side."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.data.examples import Examples
from fedadmm.data.federated import FederatedData, PartitionedData

Counts = npt.NDArray[np.int64]


class Batch(NamedTuple):
    """What the first `num_clients` clients of a stack meet at one step."""

    num_clients: int
    inputs: torch.Tensor  # [client, example, ...]
    targets: torch.Tensor  # [client, example]
    shares: torch.Tensor  # [client, example]: 1 over the size of the client's batch, 0 for padding


class Batches:
    """The examples of each step of a stack: `rows` [step, client, example] are their places, `sizes` [step, client].

    A batch is padded with examples of its own, and a client without a step has a batch of size 0.
    """

    def __init__(self, rows: Counts, sizes: Counts) -> None:
        self._rows = torch.from_numpy(rows)
        self._active = (sizes.shape[1] - np.argmax(sizes[:, ::-1] > 0, axis=1)).tolist()
        self._longest = sizes.max(axis=1).tolist()
        column = sizes[:, :, None]
        self._shares = torch.from_numpy((np.arange(rows.shape[2]) < column) / np.maximum(column, 1))

    def over(self, examples: Examples, *, like: torch.Tensor) -> Iterator[Batch]:
        """Yield the batches; they share their memory, so one must be done with when the next is asked for.

        Their device and the type of their shares are those of `like`.
        """
        _, num_clients, width = self._rows.shape
        room = examples.inputs.new_empty((num_clients * width, *examples.inputs.shape[1:]))
        shares = self._shares.to(like)
        for step, (active, longest) in enumerate(zip(self._active, self._longest, strict=True)):
            places = self._rows[step, :active, :longest].reshape(-1)
            inputs = torch.index_select(examples.inputs, 0, places, out=room[: len(places)])
            targets = examples.targets.index_select(0, places)
            yield Batch(
                active,
                inputs.view(active, longest, *inputs.shape[1:]).to(like.device),
                targets.view(active, longest).to(like.device),
                shares[step, :active, :longest],
            )


def sgd_batches(
    assignments: Sequence[Assignment], starts: Counts, counts: Counts, *, batch_size: int, seed: int
) -> Batches:
    """Return the batches of the assigned epochs, in the order that each client's named streams give."""
    widths = np.minimum(counts, batch_size)
    lengths = -(-counts // widths)  # steps of an epoch
    steps = lengths * [assignment.epochs for assignment in assignments]
    rows = np.zeros((steps.max(), len(assignments), widths.max()), dtype=np.int64)
    facts = zip(assignments, counts.tolist(), widths.tolist(), lengths.tolist(), strict=True)
    for place, (assignment, count, width, length) in enumerate(facts):
        client, round = assignment.client, assignment.round
        for epoch in range(assignment.epochs):
            generator = stream(seed, "batches", round, client, epoch) if width < count else None
            order = np.arange(count) if generator is None else generator.permutation(count)
            if count % width:  # padding is an example of the same batch
                last = np.full(length * width - count, order[(length - 1) * width])
                order = np.concatenate([order, last])
            # A row wider than a client's one batch is padded with the client's first example, place 0.
            rows[epoch * length : (epoch + 1) * length, place, :width] = order.reshape(length, width)
    step = np.arange(len(rows))[:, None]
    sizes = np.where((step + 1) % lengths, widths, counts - (lengths - 1) * widths)
    return Batches(rows + starts[:, None], np.where(step < steps, sizes, 0))


def whole_batches(starts: Counts, counts: Counts, *, chunk: int) -> Batches:
    """Return all examples once, in chunks."""
    longest = int(counts.max())
    first = np.arange(0, longest, chunk)[:, None]  # [step, 1]
    within = np.arange(min(chunk, longest))
    sizes = np.clip(counts - first, 0, chunk)  # [step, client]
    real = within < sizes[:, :, None]
    rows = np.where(real, first[:, :, None] + within, np.where(sizes > 0, first, 0)[:, :, None])
    return Batches(rows + starts[:, None], sizes)


def joined(data: FederatedData, clients: Sequence[int]) -> tuple[Examples, Counts]:
    """Return examples among which are those of the clients, and where each client's begin."""
    if isinstance(data, PartitionedData):  # already one after the other
        return Examples(data.inputs, data.targets), data.offsets[list(clients)]
    own = [data.client(client) for client in clients]
    ends = np.cumsum([len(examples.targets) for examples in own])
    return Examples(torch.cat([e.inputs for e in own]), torch.cat([e.targets for e in own])), np.array([0, *ends[:-1]])
