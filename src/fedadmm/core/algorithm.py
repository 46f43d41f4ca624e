"""What an algorithm is: pure functions over flat vectors, and the local problem that it may ask a client to solve."""

import math
from abc import ABC, abstractmethod
from dataclasses import Field, FrozenInstanceError, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Protocol, cast, dataclass_transform

from typing_extensions import TypeVar

from fedadmm.core.calls import checked_call
from fedadmm.core.schedules import check_fields

if TYPE_CHECKING:
    import torch

    Vector = torch.Tensor  # [d], or [K, d] for a stack of K clients
else:
    Vector = Any  # algorithms can be listed without torch, whose import takes seconds
Scalar = Any  # a number, or [K, 1] for a stack of K clients
Message = tuple[Any, ...]  # a NamedTuple of vectors and scalars
Newcomer = Literal["initial", "current"]


def zeros_like(vector: Vector) -> Vector:
    """Return a vector of zeros of the same form."""
    return vector.new_zeros(vector.shape)


class Turnout(NamedTuple):
    """The weights behind a round's mean upload; plain counts when all clients weigh the same."""

    round: int  # counted from 1
    active: float  # of the uploads applied in this round
    registered: float  # of all clients
    seen: float  # of the clients applied at least once so far, this round's included
    num_uploads: float = math.inf  # behind the mean, whatever they weigh; many, where nobody counts them

    @property
    def share(self) -> float:
        """The active ones as a share of all clients: the paper's |S|/m."""
        return self.active / self.registered

    @property
    def share_of_seen(self) -> float:
        """The active ones as a share of the clients seen."""
        return self.active / self.seen


class Solution(NamedTuple):
    """Where a local solve ended."""

    w: Vector
    num_steps: Scalar  # that were taken, at least 1


class LocalProblem(Protocol):
    """One client's objective f in one round; an algorithm sees no batch, no network and no device.

    For a stack of K clients every number that differs from client to client is [K, 1].
    """

    @property
    def client(self) -> Scalar:
        """The client's id, from 0 on."""

    @property
    def round(self) -> int:
        """The number of the round, from 1 on."""

    @property
    def first_visit(self) -> Scalar:
        """Whether no update of this client has counted yet; in a stack 1.0 or 0.0."""

    @property
    def last_round(self) -> Scalar:
        """The round in which this client's last update counted, 0 if none did."""

    @property
    def num_steps(self) -> Scalar:
        """The number of local steps that there is a budget for."""

    @property
    def num_examples(self) -> Scalar:
        """How many training examples the client holds."""

    @property
    def learning_rate(self) -> float:
        """The learning rate of this round's local steps."""

    @property
    def clip(self) -> float | None:
        """The largest norm of a gradient that a local step follows; None if any is followed."""

    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: Scalar = 0.0, centre: Vector | None = None
    ) -> Solution:
        """Minimise f(w) + <dual, w> + rho/2 |w - centre|^2 inexactly, from `start`; inputs stay as they are."""

    def gradient(self, w: Vector) -> Vector:
        """Return the gradient of f at w over all of the client's examples."""


class HasTheta(Protocol):
    """A NamedTuple whose first field is theta."""

    @property
    def theta(self) -> Vector: ...


class NoState(NamedTuple):
    """The state of a client that keeps nothing."""


ServerT = TypeVar("ServerT", bound=HasTheta)
ClientT = TypeVar("ClientT")
UploadT = TypeVar("UploadT")
DownloadT = TypeVar("DownloadT", bound=HasTheta, default=ServerT)


@dataclass_transform(frozen_default=True)
class Algorithm(ABC, Generic[ServerT, ClientT, UploadT, DownloadT]):
    """A federated method: a frozen dataclass whose fields are its hyper-parameters.

    `Server`, `Client`, `Upload` and, where less than the server's state travels, `Download` are NamedTuples beside it.
    The first field of `Server` and of `Download` is theta. What only some methods have is in `core.optional`.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    newcomer: Newcomer = "current"  # the theta that init_client is given: theta^0, or the one just downloaded

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(frozen=True)(cls)
        setattr(cls, "__init__", checked_call(cls.__init__, name=cls.__name__))  # noqa: B010 - mypy refuses the other
        # Assigning is refused below. So a class may still bear @dataclass(frozen=True) of its own.
        del cls.__setattr__, cls.__delattr__

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(
            f"{type(self).__name__}.{name} cannot be assigned: an algorithm keeps nothing on itself; return what is "
            f"kept as a field of Server, or of Client; a constant is a field of the class, `{name}: float = 0.1`"
        )

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be deleted: an algorithm is frozen")

    def __post_init__(self) -> None:
        """Refuse a hyper-parameter that its type does not allow: a Literal, or a range such as `PositiveRate`."""
        check_fields(self)

    @abstractmethod
    def init_server(self, theta: Vector) -> ServerT:
        """Return the server's state before round 1."""

    def init_client(self, theta: Vector) -> ClientT:
        """Return the state of a client that has never taken part: none, unless a method says otherwise."""
        return cast(ClientT, NoState())

    def download(self, server: ServerT) -> DownloadT:
        """Return what travels to a client: the server's state, unless a method says otherwise."""
        return cast(DownloadT, server)

    @abstractmethod
    def client_update(self, server: DownloadT, client: ClientT, problem: LocalProblem) -> tuple[UploadT, ClientT]:
        """Return what the client uploads and what it keeps, given what it downloaded and what it kept."""

    @abstractmethod
    def server_update(self, server: ServerT, mean: UploadT, turnout: Turnout) -> ServerT:
        """Return the server's next state from the mean upload."""

    def model(self, server: ServerT) -> Vector:
        """Return the point that is evaluated, exported and reported: theta, unless a method says otherwise."""
        return server.theta


AnyAlgorithm = Algorithm[Any, Any, Any, Any]
