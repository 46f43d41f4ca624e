"""The step of SGD with the terms of an algorithm fused into it, for one client or for a stack of them.

Weights come in parts: one vector [d], or for K clients one [K, n] for each parameter. A number that differs from client
to client is [K, 1]. A step has three phases: `begin`, then a multiple `alpha` of the gradient is added to `target`,
then `end`. In a stack, `rows` is the number of clients that still take steps; they stand first.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch

Scalar = float | torch.Tensor  # the same for all clients, or [K, 1]
Parts = Sequence[torch.Tensor | None]  # one for each part of the weights
Value = TypeVar("Value", float, torch.Tensor, Scalar)


class PlainStep:
    """w <- (1 - lr pull) w - lr (g + constant), in two passes over w, or one where there is no constant."""

    def __init__(self, weights: list[torch.Tensor], learning_rate: float, pull: Scalar, constants: Parts) -> None:
        self.target, self.alpha = weights, -learning_rate
        self._shrink = 1 - learning_rate * pull
        self._shifts = [None if constant is None else -learning_rate * constant for constant in constants]

    def begin(self, rows: int | None = None) -> None:
        """Take the part of the step that needs no gradient."""
        shrink = _first(self._shrink, rows)
        for part, part_shift in zip(self.target, self._shifts, strict=True):
            weights, shift = _first(part, rows), None if part_shift is None else _first(part_shift, rows)
            if isinstance(shrink, torch.Tensor):
                torch.mul(weights, shrink, out=weights)
                if shift is not None:
                    weights.add_(shift)
            elif shift is not None:
                torch.add(shift, weights, alpha=shrink, out=weights)
            elif shrink != 1:
                weights.mul_(shrink)

    def end(self, rows: int | None = None) -> None:
        """Do nothing: the gradient went into the weights."""


class MomentumStep:
    """v <- momentum v + g + pull w + constant;  w <- w - lr v."""

    def __init__(
        self, weights: list[torch.Tensor], learning_rate: float, pull: Scalar, constants: Parts, momentum: float
    ) -> None:
        self.target, self.alpha = [torch.zeros_like(part) for part in weights], 1.0  # the velocity
        self._weights, self._learning_rate, self._pull = weights, learning_rate, pull
        self._constants, self._momentum = constants, momentum

    def begin(self, rows: int | None = None) -> None:
        """Add to the velocity all but the gradient."""
        pull = _first(self._pull, rows)
        for part, velocity_part, constant in zip(self._weights, self.target, self._constants, strict=True):
            weights, velocity = _first(part, rows), _first(velocity_part, rows)
            velocity.mul_(self._momentum)
            if isinstance(pull, torch.Tensor):
                velocity.add_(pull * weights)
            elif pull:
                velocity.add_(weights, alpha=pull)
            if constant is not None:
                velocity.add_(_first(constant, rows))

    def end(self, rows: int | None = None) -> None:
        """Move the weights along the velocity."""
        for weights, velocity in zip(self._weights, self.target, strict=True):
            _first(weights, rows).add_(_first(velocity, rows), alpha=-self._learning_rate)


def step_rule(
    weights: list[torch.Tensor], *, learning_rate: float, pull: Scalar, constants: Parts | None, momentum: float
) -> PlainStep | MomentumStep:
    """Return the step of SGD on f(w) + <constant, w> + pull/2 |w|^2, which changes `weights` in place."""
    constants = constants or [None] * len(weights)
    if momentum:
        return MomentumStep(weights, learning_rate, pull, constants, momentum)
    return PlainStep(weights, learning_rate, pull, constants)


def _first(value: Value, rows: int | None) -> Value:
    """Return the rows of the first clients of what is stacked; what all clients share stays as it is."""
    return value[:rows] if rows is not None and isinstance(value, torch.Tensor) and value.ndim == 2 else value
