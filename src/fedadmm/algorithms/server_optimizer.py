"""A server optimizer: an algorithm around another one, whose mean step an optimizer of torch takes instead.

To the optimizer, minus the step that the inner algorithm's server would take is a gradient. What it remembers is part
of the server's state, so it is committed and resumed with theta; no client needs it, so it does not travel.
"""

from abc import abstractmethod
from collections import namedtuple
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import torch

from fedadmm.algorithms.fedavg import FedAvg
from fedadmm.core.algorithm import Algorithm, LocalProblem, Newcomer, Turnout, Vector
from fedadmm.core.books import Books
from fedadmm.core.errors import InputError

PLAIN = FedAvg()


class ServerOptimizer(Algorithm[Any, Any, Any]):
    """What FedAvgM, FedAdam and FedYogi share; the fields of its `Server` are the inner one's, and its memory."""

    inner: Algorithm[Any, Any, Any]
    memory: ClassVar[Mapping[str, str]]  # a field of ours -> the optimizer's name for it

    @abstractmethod
    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        """Return what the optimizer remembers before its first step."""

    @abstractmethod
    def optimizer(self, theta: Vector, *, round: int) -> torch.optim.Optimizer:
        """Return the optimizer of theta in a round."""

    def check_inner(self) -> None:
        """Refuse an inner algorithm whose server does not simply add a step."""
        ours = type(self).__name__
        if not isinstance(self.inner, Algorithm):
            raise InputError(
                f'inner={self.inner!r} is no algorithm; write inner = {{name = "fedprox", rho = 0.1}}'
            )
        if not self.inner.uploads_step:
            raise InputError(
                f"{type(self.inner).__name__}'s server does more than add its clients' mean step, which is all that "
                f"{ours} can do in its place; use {ours} with FedAvg, FedProx or another that uploads a step"
            )

    @property
    def newcomer(self) -> Newcomer:  # type: ignore[override]
        """The inner algorithm's."""
        return self.inner.newcomer

    @property
    def plain_sgd_only(self) -> bool:  # type: ignore[override]
        """The inner algorithm's."""
        return self.inner.plain_sgd_only

    def init_server(self, theta: Vector) -> Any:
        server = self.inner.init_server(theta)
        return self._kind(server)(*server, *self.first_memory(theta))

    def init_client(self, theta: Vector) -> Any:
        return self.inner.init_client(theta)

    def download(self, server: Any) -> Any:
        return self.inner.download(self._inner_server(server))

    def client_update(self, server: Any, client: Any, problem: LocalProblem) -> tuple[Any, Any]:
        return self.inner.client_update(server, client, problem)

    def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
        inner = self._inner_server(server)
        # From 0 the inner server ends at its step itself, and not at what a sum with theta has left of it.
        after = self.inner.server_update(inner._replace(theta=torch.zeros_like(inner.theta)), mean, turnout)
        theta = inner.theta.clone()
        optimizer = self.optimizer(theta, round=turnout.round)
        optimizer.state[theta] |= {
            name: getattr(server, field).clone() for field, name in self.memory.items()
        }
        theta.grad = -after.theta
        optimizer.step()
        theta.grad = None
        kept = (optimizer.state[theta][name] for name in self.memory.values())
        return type(server)(*after._replace(theta=theta), *kept)

    def own_model(self, client: Any) -> Vector | None:
        return self.inner.own_model(client)

    def books(self, server: Any, *, initial: Vector, registered: float) -> Books | None:
        return self.inner.books(self._inner_server(server), initial=initial, registered=registered)

    def _inner_server(self, server: Any) -> Any:
        own = server[: -len(self.memory)]
        return type(self.inner.init_server(server.theta))(*own)

    def _kind(self, server: Any) -> type[Any]:
        return _server_kind(tuple(server._fields), tuple(self.memory))


@cache
def _server_kind(inner: tuple[str, ...], memory: tuple[str, ...]) -> type[Any]:
    return namedtuple("Server", [*inner, *memory])
