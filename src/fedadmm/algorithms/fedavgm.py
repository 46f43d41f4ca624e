"""FedAvgM: measuring the effects of non-identical data distribution (Hsu, Qi and Brown, 2019), a server with momentum.

theta  the server's model              v    the momentum: v <- beta v - step, then theta <- theta - eta v
beta   how much of v stays             step  what the inner algorithm would add to theta
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedadmm.algorithms.server_optimizer import PLAIN, ServerOptimizer
from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.schedules import Rate, at, check_rate


@dataclass(frozen=True)
class FedAvgM(ServerOptimizer):
    """The mean step is taken with momentum (torch's SGD)."""

    eta: Rate = 1.0
    beta: float = 0.9
    inner: Algorithm[Any, Any, Any] = PLAIN

    memory: ClassVar[Mapping[str, str]] = {"v": "momentum_buffer"}

    def __post_init__(self) -> None:
        check_rate("eta", self.eta, positive=True)
        check_decay("beta", self.beta)
        self.check_inner()

    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        return (torch.zeros_like(theta),)

    def optimizer(self, theta: Vector, *, round: int) -> torch.optim.Optimizer:
        return torch.optim.SGD([theta], lr=at(self.eta, round), momentum=self.beta, foreach=False)


def check_decay(name: str, value: object) -> None:
    """Refuse what is no share of a memory that may stay."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise InputError(f"{name}={value!r} is out of range; use a number from 0 to below 1")
