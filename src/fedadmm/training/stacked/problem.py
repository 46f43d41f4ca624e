"""Stochastic gradient descent on K clients' problems as one tensor program: the serial step on [K, d].

A scalar that differs from client to client is [K, 1]. Clients stand in falling order of their steps, so that those
who are done drop off the end of the stack.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedadmm.core.algorithm import Solution, Vector
from fedadmm.core.round import Assignment, Buffers, ClientStats
from fedadmm.core.seeds import streams
from fedadmm.data.examples import Examples
from fedadmm.data.federated import FederatedData, PartitionedData
from fedadmm.training.model_checks import check_plain_mean, check_whole_inputs
from fedadmm.training.objective import CHUNK
from fedadmm.training.stacked.gradients import clipped, columns, stacked_gradients
from fedadmm.training.steps import Scalar, step_rule

if TYPE_CHECKING:
    from fedadmm.training.task import LearningTask

MEMORY = 1 << 28  # bytes that a stack may take
VECTORS = 16  # of a client, at most, at one time: weights, gradient, state, upload, and what is between
THREADED_FROM = 1_000_000  # examples x parameters of a batch: below, one core does it in less than a millisecond
PLACE = 24  # bytes for the place of an example in a batch, and its share

Counts = npt.NDArray[np.int64]


def stack_size(counts: Counts, *, epochs: int, num_parameters: int, example_bytes: int) -> int:
    """Return how many clients with these numbers of examples and at most this many epochs a stack may hold."""
    longest = int(counts.max())
    examples = 2 * min(longest, CHUNK) * example_bytes + PLACE * epochs * longest
    return max(1, MEMORY // (VECTORS * 4 * num_parameters + examples))


class StackedProblem:
    """The objectives of K clients in one round; `assignments` is their order in the stack."""

    def __init__(self, task: "LearningTask", assignments: Sequence[Assignment], *, buffers: Buffers) -> None:
        model, local = task.model, task.local
        clients = [assignment.client for assignment in assignments]
        examples, starts = joined(task.data, clients)
        if not isinstance(task.data, PartitionedData):  # of which all was tried before round 1
            check_whole_inputs(model, examples)
            check_plain_mean(task.loss, examples.targets)
        counts = task.data.num_examples[clients]
        batch_size = int(counts.max()) if local.batch_size == "full" else local.batch_size
        epochs = np.array([assignment.epochs for assignment in assignments])
        steps = epochs * -(-counts // np.minimum(counts, batch_size))
        order = np.argsort(-steps, kind="stable")
        self.assignments = [assignments[place] for place in order]
        self._starts, self._counts, self._num_steps = starts[order], counts[order], steps[order]
        self._model, self._examples, self._buffers = model, examples, buffers
        self._local, self._batch_size, self._seed, self._l2 = local, batch_size, task.seed, task.l2
        self._gradients = stacked_gradients(model, task.loss, input_dims=examples.inputs.ndim - 1)
        self.round = assignments[0].round
        self.client = self._column(np.array([assignment.client for assignment in self.assignments]))
        self.learning_rate, self.clip = local.learning_rate_at(self.round), local.clip
        self.num_steps = self._column(self._num_steps)
        self.num_examples = self._column(self._counts)
        self.first_visit = self._column(np.array([assignment.first_visit for assignment in self.assignments]))
        self.last_round = self._column(np.array([assignment.last_round or 0 for assignment in self.assignments]))
        self._steps, self._evaluations = np.zeros_like(steps), np.zeros_like(steps)
        self._loss_sum = model.weights.new_zeros(len(assignments))

    @torch.enable_grad()
    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: Scalar = 0.0, centre: Vector | None = None
    ) -> Solution:
        """Run the assigned epochs of SGD on f(w) + <dual, w> + rho/2 |w - centre|^2, from `start`."""
        constant = dual
        if isinstance(rho, torch.Tensor) or rho:
            assert centre is not None
            constant = -rho * centre if dual is None else _less(dual, centre, times=rho)
        weights = self._parts(start)
        constants = None if constant is None else columns(constant, self._model)
        decay = self._local.weight_decay + self._l2
        pull = rho + decay  # of w towards 0; `constant` moves rho's part to the centre
        if self._local.momentum and not isinstance(pull, torch.Tensor):
            pull = weights[0].new_full((1, 1), pull)  # a product of its own: as an alpha it would be rounded otherwise
        step = step_rule(
            weights, learning_rate=self.learning_rate, pull=pull, constants=constants, momentum=self._local.momentum
        )
        batches = sgd_batches(
            self.assignments, self._starts, self._counts, batch_size=self._batch_size, seed=self._seed
        )
        room = None if self.clip is None else [torch.empty_like(part) for part in weights]
        for k, *batch in self._threaded(batches.over(self._examples, like=weights[0])):
            losses, add = self._gradients(self._shaped(weights, k), *batch)
            if room is not None and self.clip is not None:
                add = clipped(add, self.clip, room=self._shaped(room, k))
            self._loss_sum[:k] += losses
            step.begin(k)
            add(self._shaped(step.target, k), step.alpha)
            step.end(k)
        self._steps += self._num_steps
        self._evaluations += self._counts * [assignment.epochs for assignment in self.assignments]
        return Solution(torch.cat(weights, dim=1), self.num_steps)

    @torch.enable_grad()
    def gradient(self, w: Vector) -> Vector:
        """Return the gradients of the objectives over all of each client's examples."""
        total, weights = self._parts(self._l2 * w if self._l2 else torch.zeros_like(w)), self._parts(w)
        batches = whole_batches(self._starts, self._counts, chunk=CHUNK)
        for k, inputs, targets, shares in self._threaded(batches.over(self._examples, like=total[0])):
            part = (shares > 0).sum(dim=1, keepdim=True) / self.num_examples[:k]  # of a client's examples
            losses, add = self._gradients(self._shaped(weights, k), inputs, targets, shares * part)
            self._loss_sum[:k] += losses
            add(self._shaped(total, k), 1.0)
        self._steps += 1
        self._evaluations += self._counts
        return torch.cat(total, dim=1)

    def stats(self) -> list[ClientStats]:
        """Return what was done for each client since the problem was made."""
        losses = (self._loss_sum / self._column(np.maximum(self._steps, 1))[:, 0]).tolist()
        done = zip(self._steps.tolist(), self._evaluations.tolist(), losses, strict=True)
        return [ClientStats(*numbers, self._buffers) for numbers in done]

    def _threaded(self, batches: Iterator["Batch"]) -> Iterator["Batch"]:
        """Let at most one thread a client work on a batch: no product is then divided, and the bits are one thread's.

        A small batch has one thread: on a busy machine threads wait for each other longer than they work.
        """
        usual = torch.get_num_threads()
        try:
            for batch in batches:
                work = batch.shares.numel() * self._model.weights.numel()
                torch.set_num_threads(min(usual, batch.num_clients) if work >= THREADED_FROM else 1)
                yield batch
        finally:
            torch.set_num_threads(usual)

    def _parts(self, flat: Vector) -> list[torch.Tensor]:
        """Return copies of a vector or a stack of them, one [K, n] for each parameter: products into them are fast."""
        return [
            part.new_empty(len(self.assignments), part.shape[-1]).copy_(part) for part in columns(flat, self._model)
        ]

    def _shaped(self, parts: Sequence[torch.Tensor], num_clients: int) -> list[torch.Tensor]:
        """Return the parts of the first clients in the shapes of the parameters, [K, ...]."""
        return [
            part[:num_clients].view(num_clients, *p.shape)
            for part, p in zip(parts, self._model.parameters, strict=True)
        ]

    def _column(self, values: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(values[:, None]).to(self._model.weights)


def _less(vector: Vector, other: Vector, *, times: Scalar) -> Vector:
    """Return vector - times x other, in one pass where all clients have the same number."""
    if isinstance(times, torch.Tensor):
        return vector - times * other
    return torch.sub(vector, other, alpha=times)


class Batch(NamedTuple):
    """What the first `num_clients` clients of a stack meet at one step."""

    num_clients: int
    inputs: torch.Tensor  # [client, example, ...]
    targets: torch.Tensor  # [client, example, ...]
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
            inputs = inputs.view(active, longest, *inputs.shape[1:]).to(like.device)
            targets = examples.targets.index_select(0, places)
            targets = targets.view(active, longest, *targets.shape[1:]).to(like.device)
            yield Batch(active, inputs, targets, shares[step, :active, :longest])


def sgd_batches(
    assignments: Sequence[Assignment], starts: Counts, counts: Counts, *, batch_size: int, seed: int
) -> Batches:
    """Return the batches of the assigned epochs, in the order that each client's named streams give."""
    widths = np.minimum(counts, batch_size)
    lengths = -(-counts // widths)  # steps of an epoch
    steps = lengths * [assignment.epochs for assignment in assignments]
    # A row wider than a client's one batch is padded with the client's first example, place 0.
    rows = np.zeros((steps.max(), len(assignments), widths.max()), dtype=np.int64)
    alike: dict[tuple[int, int], list[int]] = {}  # clients with as many examples and epochs are dealt with at once
    for place, (assignment, count) in enumerate(zip(assignments, counts.tolist(), strict=True)):
        alike.setdefault((count, assignment.epochs), []).append(place)
    for (count, epochs), places in alike.items():
        width, length = int(widths[places[0]]), int(lengths[places[0]])
        orders = np.empty((len(places) * epochs, length * width), dtype=np.int64)
        orders[:, :count] = np.arange(count)
        if width < count:
            owners = [assignments[place] for place in places]
            names = [(owner.round, owner.client, epoch) for owner in owners for epoch in range(epochs)]
            for order, generator in zip(orders[:, :count], streams(seed, "batches", names), strict=True):
                generator.shuffle(order)
        orders[:, count:] = orders[:, [(length - 1) * width]]  # padding is an example of the same batch
        rows[: epochs * length, places, :width] = orders.reshape(len(places), -1, width).swapaxes(0, 1)
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
