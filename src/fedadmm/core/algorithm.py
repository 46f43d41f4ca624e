"""What an algorithm is: four pure methods over flat vectors, and the local problem it may ask a client to solve."""

from abc import ABC, abstractmethod
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import torch

from fedadmm.core.invariant import Books

Vector: TypeAlias = torch.Tensor  # [d], or [K, d] for a stack of K clients
Message: TypeAlias = tuple[Any, ...]  # a NamedTuple of vectors and scalars
Newcomer = Literal["initial", "current"]


class Turnout(NamedTuple):
    """The weights behind a round's mean upload; plain counts when all clients weigh the same."""

    round: int  # counted from 1
    active: float  # of the uploads applied in this round
    registered: float  # of all clients
    seen: float  # of the clients applied at least once so far, this round's included


class LocalProblem(Protocol):
    """One client's objective f in one round; an algorithm sees no batch, no network and no device."""

    @property
    def client(self) -> int: ...
    @property
    def round(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def num_examples(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...

    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: float = 0.0, centre: Vector | None = None
    ) -> Vector:
        """Minimise f(w) + <dual, w> + rho/2 |w - centre|^2 inexactly, from `start`; inputs stay as they are."""
        ...

    def gradient(self, w: Vector) -> Vector:
        """Return the gradient of f at w over all of the client's examples."""
        ...

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Return the Hessian of f at w times v; only for `second_order` algorithms, and for one client [d]."""
        ...

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        """Return x with (H + rho I) x = v, for the Hessian H of f at w; as above."""
        ...


ServerT = TypeVar("ServerT")
ClientT = TypeVar("ClientT")
UploadT = TypeVar("UploadT")


class Algorithm(ABC, Generic[ServerT, ClientT, UploadT]):
    """A federated method: a frozen dataclass whose fields are its hyper-parameters.

    `Server`, `Client` and `Upload` are NamedTuples beside it. The first field of a `Server` is `theta`.
    """

    newcomer: Newcomer = "current"  # the theta that init_client is given: theta^0, or the one just downloaded
    needs_everyone: bool = False  # True where the method is stated for all clients in every round
    second_order: bool = False  # True where it asks for Hessians, so for convex problems
    plain_sgd_only: bool = False  # True where the mathematics has no room for momentum and weight decay
    uploads_step: bool = False  # True where all that a server does to theta is to add the clients' mean step
    # None: the clients selected for a round compute and communicate. A number: all clients compute in every round, the
    # selected ones communicate, and with this probability nobody does.
    silence: float | None = None

    @abstractmethod
    def init_server(self, theta: Vector) -> ServerT:
        """Return the server's state before round 1."""

    @abstractmethod
    def init_client(self, theta: Vector) -> ClientT:
        """Return the state of a client that has never taken part."""

    @abstractmethod
    def client_update(self, server: ServerT, client: ClientT, problem: LocalProblem) -> tuple[UploadT, ClientT]:
        """Return what the client uploads and what it keeps, given what it downloaded and what it kept."""

    @abstractmethod
    def server_update(self, server: ServerT, mean: UploadT, turnout: Turnout) -> ServerT:
        """Return the server's next state from the mean upload."""

    def download(self, server: ServerT) -> ServerT:
        """Return what travels to a client: the server's state, less what no client needs (None)."""
        return server

    def joining(self, upload: UploadT, *, then: ServerT, now: ServerT) -> UploadT:
        """Return what a newcomer's upload counts as when theta has moved on since its download: the upload itself."""
        return upload

    def receive(self, server: ServerT, client: ClientT) -> ClientT:
        """Return what a client keeps once the server's state has reached it, before its update."""
        return client

    def own_model(self, client: ClientT) -> Vector | None:
        """Return the model that is a client's own, None where a method gives it none beside theta."""
        return None

    def books(self, server: ServerT, *, initial: Vector, registered: float) -> Books | None:
        """Return what the server's state promises of the clients', None where it promises nothing.

        initial: theta^0. registered: the weight of all clients.
        """
        return None
