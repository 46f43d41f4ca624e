"""An algorithm around another one: its clients are the inner one's, its server does something else with their uploads.

What its server remembers is part of the server's state, so it is committed and resumed with theta; no client needs it,
so it does not travel.
"""

import copyreg
from abc import abstractmethod
from collections import namedtuple
from functools import cache
from typing import Any, ClassVar

from fedadmm.algorithms.fedavg import FedAvg
from fedadmm.core.algorithm import Algorithm, AnyAlgorithm, LocalProblem, Newcomer, Turnout, Vector, zeros_like
from fedadmm.core.errors import InputError
from fedadmm.core.optional import HasInvariant, Invariant, LetsGoOfClients, UploadsStep, invariant_of

PLAIN = FedAvg()


class Wrapper(Algorithm[Any, Any, Any], HasInvariant, LetsGoOfClients):
    """What such algorithms share; the fields of its `Server` are the inner one's, and its memory."""

    memory: ClassVar[tuple[str, ...]]  # the names of the fields of its own

    @property
    @abstractmethod
    def inner(self) -> AnyAlgorithm: ...

    @abstractmethod
    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        """Return what its server remembers before the first round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_inner()
        inner = self.inner
        while isinstance(inner, Wrapper):
            if set(self.memory) & set(inner.memory):
                ours, theirs = type(self).__name__, type(inner).__name__
                raise InputError(f"{ours} around {theirs} would remember the same things twice; use {ours} once")
            inner = inner.inner

    def check_inner(self) -> None:
        """Refuse an inner algorithm that is none, or that it cannot be around."""
        if not isinstance(self.inner, Algorithm):
            remedy = 'write inner = {name = "fedprox", rho = 0.1}, or in Python inner=FedProx(rho=0.1)'
            raise InputError(f"inner={self.inner!r} is not an algorithm; {remedy}")

    @property
    def newcomer(self) -> Newcomer:  # type: ignore[override]
        """The inner algorithm's."""
        return self.inner.newcomer

    def init_server(self, theta: Vector) -> Any:
        server = self.inner.init_server(theta)
        return wider("Server", server, self.memory)(*server, *self.first_memory(theta))

    def init_client(self, theta: Vector) -> Any:
        return self.inner.init_client(theta)

    def download(self, server: Any) -> Any:
        return self.inner.download(self.inner_server(server))

    def client_update(self, server: Any, client: Any, problem: LocalProblem) -> tuple[Any, Any]:
        return self.inner.client_update(server, client, problem)

    def model(self, server: Any) -> Vector:
        return self.inner.model(self.inner_server(server))

    def invariant(self, server: Any, *, initial: Vector, registered: float) -> Invariant | None:
        return invariant_of(self.inner, self.inner_server(server), initial=initial, registered=registered)

    def without_client(self, server: Any) -> Any:
        if not isinstance(self.inner, LetsGoOfClients):
            return server
        inner = self.inner.without_client(self.inner_server(server))
        return type(server)(*inner, *server[len(inner) :])

    def inner_server(self, server: Any) -> Any:
        """Return the server's state as the inner algorithm knows it."""
        kind = type(self.inner.init_server(server.theta))
        return kind(*server[: len(kind._fields)])


def wider(name: str, message: Any, more: tuple[str, ...]) -> type[Any]:
    """Return the type of a message with the fields of an inner algorithm's, and some more."""
    if twice := set(message._fields) & set(more):
        raise InputError(
            f"a {name} of {type(message).__module__} has a field {min(twice)}, and what is around that method adds "
            "one; rename yours"
        )
    return _kind(name, (*message._fields, *more))


class _Wider(type):
    """The type of such messages, which another process makes again."""

    _fields: tuple[str, ...]


@cache
def _kind(name: str, fields: tuple[str, ...]) -> _Wider:
    return _Wider(name, (namedtuple(name, fields),), {"__slots__": ()})


copyreg.pickle(_Wider, lambda kind: (_kind, (kind.__name__, kind._fields)))


class ServerOptimizer(Wrapper):
    """What FedAvgM, FedAdam and FedYogi share: their server takes the mean step of the inner algorithm in its own way.

    To it, minus the step that the inner algorithm's server would take is a gradient g.
    """

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
        memory = server[len(inner) :]
        theta, *memory = self.stepped(inner.theta, -after.theta, *memory, round=turnout.round)
        return type(server)(*after._replace(theta=theta), *memory)
