"""A server optimizer: an algorithm around another one, whose mean step an optimizer of torch takes instead.

To the optimizer, minus the step that the inner algorithm's server would take is a gradient.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from fedadmm.algorithms.fedavg import FedAvg
from fedadmm.algorithms.wrapper import Around
from fedadmm.core.algorithm import Turnout, Vector
from fedadmm.core.errors import InputError

PLAIN = FedAvg()


class ServerOptimizer(Around):
    """What FedAvgM, FedAdam and FedYogi share."""

    memory: ClassVar[Mapping[str, str]]  # a field of ours -> the optimizer's name for it

    @abstractmethod
    def optimizer(self, theta: Vector, *, round: int) -> torch.optim.Optimizer:
        """Return the optimizer of theta in a round."""

    def check_inner(self) -> None:
        """Refuse an inner algorithm whose server does not simply add a step."""
        ours = type(self).__name__
        self.check_is_algorithm()
        if not self.inner.uploads_step:
            raise InputError(
                f"{type(self.inner).__name__}'s server does more than add its clients' mean step, which is all that "
                f"{ours} can do in its place; use {ours} with FedAvg, FedProx or another that uploads a step"
            )

    def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
        inner = self.inner_server(server)
        # From 0 the inner server ends at its step itself, and not at what a sum with theta has left of it.
        after = self.inner.server_update(inner._replace(theta=torch.zeros_like(inner.theta)), mean, turnout)
        theta = inner.theta.clone()
        optimizer = self.optimizer(theta, round=turnout.round)
        optimizer.state[theta] |= {name: getattr(server, field).clone() for field, name in self.memory.items()}
        theta.grad = -after.theta
        optimizer.step()
        theta.grad = None
        kept = (optimizer.state[theta][name] for name in self.memory.values())
        return type(server)(*after._replace(theta=theta), *kept)
