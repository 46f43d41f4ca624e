"""A server optimizer: an algorithm around another one, whose mean step it takes in its own way.

To the optimizer, minus the step that the inner algorithm's server would take is a gradient g.
"""

from abc import abstractmethod
from typing import Any

from fedadmm.algorithms.fedavg import FedAvg
from fedadmm.algorithms.wrapper import Wrapper
from fedadmm.core.algorithm import Turnout, Vector, zeros_like
from fedadmm.core.errors import InputError
from fedadmm.core.optional import UploadsStep

PLAIN = FedAvg()


class ServerOptimizer(Wrapper):
    """What FedAvgM, FedAdam and FedYogi share."""

    @abstractmethod
    def stepped(self, theta: Vector, g: Vector, *memory: Vector, round: int) -> tuple[Vector, ...]:
        """Return theta and the memory after a round."""

    def check_inner(self) -> None:
        """Refuse an inner algorithm whose server does not simply add a step."""
        ours = type(self).__name__
        super().check_inner()
        if not isinstance(self.inner, UploadsStep):
            raise InputError(
                f"{type(self.inner).__name__}'s server does more than add its clients' mean step, which is all that "
                f"{ours} can do in its place; use {ours} with FedAvg, FedProx or another that uploads a step"
            )

    def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
        inner = self.inner_server(server)
        # From 0 the inner server ends at its step itself, and not at what a sum with theta has left of it.
        after = self.inner.server_update(inner._replace(theta=zeros_like(inner.theta)), mean, turnout)
        memory = server[-len(self.memory) :]
        theta, *memory = self.stepped(inner.theta, -after.theta, *memory, round=turnout.round)
        return type(server)(*after._replace(theta=theta), *memory)
