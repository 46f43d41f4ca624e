"""Stochastic gradient descent on K clients' problems as one tensor program: the serial step on [K, d].

A scalar that differs from client to client is [K, 1]. Clients stand in falling order of their steps, so that those
who are done drop off the end of the stack.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from fedadmm.core.algorithm import Solution, Vector
from fedadmm.core.round import Assignment, Buffers, ClientStats
from fedadmm.data.examples import Examples
from fedadmm.training.evaluation import Loss
from fedadmm.training.flat import FlatModel
from fedadmm.training.local import LocalTraining
from fedadmm.training.objective import CHUNK
from fedadmm.training.stacked.batches import Batch, Counts, sgd_batches, whole_batches
from fedadmm.training.stacked.gradients import columns, stacked_gradients
from fedadmm.training.steps import Scalar, step_rule

MEMORY = 1 << 28  # bytes that a stack may take
VECTORS = 16  # of a client, at most, at one time: weights, gradient, state, upload, and what is between
PLACE = 24  # bytes for the place of an example in a batch, and its share


def stack_size(counts: Counts, *, epochs: int, num_parameters: int, example_bytes: int) -> int:
    """Return how many clients with these numbers of examples and at most this many epochs a stack may hold."""
    longest = int(counts.max())
    examples = 2 * min(longest, CHUNK) * example_bytes + PLACE * epochs * longest
    return max(1, MEMORY // (VECTORS * 4 * num_parameters + examples))


class StackedProblem:
    """The objectives of K clients in one round; `assignments` is their order in the stack."""

    def __init__(
        self,
        model: FlatModel,
        examples: Examples,
        *,
        starts: Counts,
        counts: Counts,
        assignments: Sequence[Assignment],
        buffers: Buffers,
        local: LocalTraining,
        loss: Loss,
        seed: int,
        l2: float = 0.0,
    ) -> None:
        """Begin with examples[starts[k] : starts[k] + counts[k]] as those of assignment k."""
        batch_size = int(counts.max()) if local.batch_size == "full" else local.batch_size
        epochs = np.array([assignment.epochs for assignment in assignments])
        steps = epochs * -(-counts // np.minimum(counts, batch_size))
        order = np.argsort(-steps, kind="stable")
        self.assignments = [assignments[place] for place in order]
        self._starts, self._counts, self._num_steps = starts[order], counts[order], steps[order]
        self._model, self._examples, self._buffers = model, examples, buffers
        self._local, self._batch_size, self._seed, self._l2 = local, batch_size, seed, l2
        self._gradients = stacked_gradients(model, loss, input_dims=examples.inputs.ndim - 1)
        self.round = assignments[0].round
        self.learning_rate = local.learning_rate_at(self.round)
        self.num_steps = self._column(self._num_steps)
        self.num_examples = self._column(self._counts)
        self.first_visit = self._column(np.array([assignment.first_visit for assignment in self.assignments]))
        self.last_round = self._column(np.array([assignment.last_round or 0 for assignment in self.assignments]))
        self._steps, self._evaluations = np.zeros_like(steps), np.zeros_like(steps)
        self._loss_sum = model.weights.new_zeros(len(assignments))

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
        for k, *batch in _threaded(batches.over(self._examples, like=weights[0])):
            losses, add = self._gradients(self._shaped(weights, k), *batch)
            self._loss_sum[:k] += losses
            step.begin(k)
            add(self._shaped(step.target, k), step.alpha)
            step.end(k)
        self._steps += self._num_steps
        self._evaluations += self._counts * [assignment.epochs for assignment in self.assignments]
        return Solution(torch.cat(weights, dim=1), self.num_steps)

    def gradient(self, w: Vector) -> Vector:
        """Return the gradients of the objectives over all of each client's examples."""
        total, weights = self._parts(self._l2 * w if self._l2 else torch.zeros_like(w)), self._parts(w)
        batches = whole_batches(self._starts, self._counts, chunk=CHUNK)
        for k, inputs, targets, shares in _threaded(batches.over(self._examples, like=total[0])):
            part = (shares > 0).sum(dim=1, keepdim=True) / self.num_examples[:k]  # of a client's examples
            losses, add = self._gradients(self._shaped(weights, k), inputs, targets, shares * part)
            self._loss_sum[:k] += losses / part[:, 0].where(part[:, 0] > 0, 1)
            add(self._shaped(total, k), 1.0)
        self._steps += -(-self._counts // CHUNK)
        self._evaluations += self._counts
        return torch.cat(total, dim=1)

    def stats(self) -> list[ClientStats]:
        """Return what was done for each client since the problem was made."""
        losses = (self._loss_sum / self._column(np.maximum(self._steps, 1))[:, 0]).tolist()
        done = zip(self._steps.tolist(), self._evaluations.tolist(), losses, strict=True)
        return [ClientStats(*numbers, self._buffers) for numbers in done]

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


def _threaded(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Let at most one thread a client work on a batch: no product is then divided, and the bits are one thread's."""
    usual = torch.get_num_threads()
    try:
        for batch in batches:
            torch.set_num_threads(min(usual, batch.num_clients))
            yield batch
    finally:
        torch.set_num_threads(usual)


def _less(vector: Vector, other: Vector, *, times: Scalar) -> Vector:
    """Return vector - times x other, in one pass where all clients have the same number."""
    if isinstance(times, torch.Tensor):
        return vector - times * other
    return torch.sub(vector, other, alpha=times)
