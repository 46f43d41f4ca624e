"""Stochastic gradient descent on K clients' problems as one tensor program: the serial step on [K, d].

A scalar that differs from client to client is [K, 1]. Clients stand in falling order of their steps, so that those
who are done drop off the end of the stack.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedadmm.core.algorithm import Vector
from fedadmm.core.round import Assignment, Buffers, Effort
from fedadmm.data.examples import Examples
from fedadmm.learning.evaluation import Loss
from fedadmm.learning.flat import FlatModel
from fedadmm.learning.local import Local
from fedadmm.learning.sgd import CHUNK
from fedadmm.learning.stack_batches import Counts, sgd_batches, whole_batches
from fedadmm.learning.stack_gradients import split, stacked_gradients

MEMORY = 1 << 28  # bytes that a stack may take
VECTORS = 16  # of a client, at most, at one time: weights, gradient, state, upload, and what is between
PLACE = 24  # bytes for the place of an example in a batch, and its share

Scalar = float | torch.Tensor  # the same for all clients, or [K, 1]
Add = Callable[[torch.Tensor, float], None]  # adds a multiple of the gradients to a [K, d]


def stack_size(counts: Counts, *, epochs: int, num_parameters: int, example_bytes: int) -> int:
    """Return how many clients with so many examples and at most so many epochs a stack may hold."""
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
        local: Local,
        loss: Loss,
        seed: int,
    ) -> None:
        """Begin with examples[starts[k] : starts[k] + counts[k]] as those of assignment k."""
        batch_size = int(counts.max()) if local.batch_size == "full" else local.batch_size
        epochs = np.array([assignment.epochs for assignment in assignments])
        steps = epochs * -(-counts // np.minimum(counts, batch_size))
        order = np.argsort(-steps, kind="stable")
        self.assignments = [assignments[place] for place in order]
        self._starts, self._counts, self._num_steps = starts[order], counts[order], steps[order]
        self._model, self._examples, self._buffers = model, examples, buffers
        self._local, self._batch_size, self._seed = local, batch_size, seed
        self._gradients = stacked_gradients(model, loss, input_dims=examples.inputs.ndim - 1)
        self.round = assignments[0].round
        self.learning_rate = local.learning_rate_at(self.round)
        self.num_steps = self._column(self._num_steps)
        self.num_examples = self._column(self._counts)
        self._steps, self._evaluations = np.zeros_like(steps), np.zeros_like(steps)
        self._loss_sum = model.weights.new_zeros(len(assignments))

    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: Scalar = 0.0, centre: Vector | None = None
    ) -> Vector:
        """Run the assigned epochs of SGD on f(w) + <dual, w> + rho/2 |w - centre|^2, from `start`."""
        constant = dual
        if isinstance(rho, torch.Tensor) or rho:
            assert centre is not None
            constant = -rho * centre if dual is None else dual - rho * centre
        weights = self._room().copy_(start)
        pull = rho + self._local.weight_decay  # of w towards 0; `constant` moves that to the centre
        step = (
            _MomentumStep(weights, self.learning_rate, pull, constant, self._local.momentum)
            if self._local.momentum
            else _PlainStep(weights, self.learning_rate, pull, constant)
        )
        batches = sgd_batches(
            self.assignments, self._starts, self._counts, batch_size=self._batch_size, seed=self._seed
        )
        for k, *batch in batches.over(self._examples, like=weights):
            losses, add = self._gradients(split(weights[:k], self._model), *batch)
            self._loss_sum[:k] += losses
            step(k, lambda to, alpha: add(split(to, self._model), alpha))  # noqa: B023
        self._steps += self._num_steps
        self._evaluations += self._counts * [assignment.epochs for assignment in self.assignments]
        return weights

    def gradient(self, w: Vector) -> Vector:
        """Return the gradients of the mean losses over all of each client's examples."""
        total = self._room().zero_()
        views, weights = split(total, self._model), split(w.expand_as(total), self._model)
        batches = whole_batches(self._starts, self._counts, chunk=CHUNK)
        for k, inputs, targets, shares in batches.over(self._examples, like=total):
            part = (shares > 0).sum(dim=1, keepdim=True) / self.num_examples[:k]  # of a client's examples
            losses, add = self._gradients([w[:k] for w in weights], inputs, targets, shares * part)
            self._loss_sum[:k] += losses / part[:, 0].where(part[:, 0] > 0, 1)
            add([view[:k] for view in views], 1.0)
        self._steps += -(-self._counts // CHUNK)
        self._evaluations += self._counts
        return total

    def efforts(self) -> list[Effort]:
        """Return what was done for each client since the problem was made."""
        losses = (self._loss_sum / self._column(np.maximum(self._steps, 1))[:, 0]).tolist()
        done = zip(self._steps.tolist(), self._evaluations.tolist(), losses, strict=True)
        return [Effort(*numbers, self._buffers) for numbers in done]

    def _room(self) -> torch.Tensor:
        return self._model.weights.new_empty(len(self.assignments), self._model.weights.numel())

    def _column(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values[:, None]).to(self._model.weights)


class _PlainStep:
    """w <- (1 - lr pull) w - lr (g + constant) for the first clients of a stack."""

    def __init__(
        self, weights: torch.Tensor, learning_rate: float, pull: Scalar, constant: Vector | None
    ) -> None:
        self._weights, self._learning_rate = weights, learning_rate
        self._shrink = 1 - learning_rate * pull
        self._shift = None if constant is None else -learning_rate * constant

    def __call__(self, num_clients: int, add: Add) -> None:
        weights, shrink = self._weights[:num_clients], _first(self._shrink, num_clients)
        shift = _first(self._shift, num_clients)
        if isinstance(shrink, torch.Tensor):
            torch.mul(weights, shrink, out=weights)
        elif shift is not None:
            torch.add(shift, weights, alpha=shrink, out=weights)
            shift = None
        elif shrink != 1:
            weights.mul_(shrink)
        if shift is not None:
            weights.add_(shift)
        add(weights, -self._learning_rate)


class _MomentumStep:
    """v <- momentum v + g + pull w + constant;  w <- w - lr v, for the first clients of a stack."""

    def __init__(
        self,
        weights: torch.Tensor,
        learning_rate: float,
        pull: Scalar,
        constant: Vector | None,
        momentum: float,
    ) -> None:
        self._weights, self._learning_rate, self._pull = weights, learning_rate, pull
        self._constant, self._momentum = constant, momentum
        self._velocity = torch.zeros_like(weights)

    def __call__(self, num_clients: int, add: Add) -> None:
        weights, velocity = self._weights[:num_clients], self._velocity[:num_clients]
        velocity.mul_(self._momentum).add_(_first(self._pull, num_clients) * weights)
        if self._constant is not None:
            velocity.add_(_first(self._constant, num_clients))
        add(velocity, 1.0)
        weights.add_(velocity, alpha=-self._learning_rate)


def _first(value: Any, num_clients: int) -> Any:
    """Return the part of the first clients of what is stacked; what all clients share stays as it is."""
    return value[:num_clients] if isinstance(value, torch.Tensor) and value.ndim == 2 else value
