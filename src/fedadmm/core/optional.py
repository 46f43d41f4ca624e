"""What only some algorithms have, as bases beside `Algorithm`; one that has none of it shows none of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from fedadmm.core.algorithm import Algorithm, AnyAlgorithm, LocalProblem, Message, Vector
from fedadmm.core.state_parts import HeldBack, own_fields, with_vectors, without_part

T = TypeVar("T")


def trait(algorithm: AnyAlgorithm, kind: type[T]) -> T | None:
    """Return the algorithm if it is of this kind, else the one that it wraps if that is, else None."""
    if isinstance(algorithm, kind):
        return algorithm
    inner = getattr(algorithm, "inner", None)
    return trait(inner, kind) if isinstance(inner, Algorithm) else None


class NeedsEveryClient:
    """A method that is stated for all clients in every round."""


class StepsOfSGDOnly:
    """A method that reads a mean gradient off a client's step, as step / (learning rate x number of steps)."""


class PlainSGDOnly(StepsOfSGDOnly):
    """A method whose mathematics has no room for momentum and weight decay."""


class AddsOwnSteps(StepsOfSGDOnly):
    """A method whose clients move, beside their gradients, a way that it divides among the steps of a visit."""


class GradientsOnly:
    """A method that takes gradients and never solves a local problem, so it has no use for the settings of a solve."""


class UploadsStep:
    """A method whose server does nothing to theta but add the clients' mean step."""


class UploadsMoreThanChange:
    """A method whose uploads are not linear in the change of its clients' vectors, as they weigh them by numbers.

    Where such an upload is shortened on its way, no state of the client fits what was sent: clipping is refused.
    """


class CanOmitNumbers(ABC):
    """A method that uploads numbers beside its vectors, and with some hyper-parameters zeros in their place."""

    how_to_omit: ClassVar[str]  # the remedy, in words

    @property
    @abstractmethod
    def uploads_only_vectors(self) -> bool:
        """Whether all numbers that are uploaded are 0."""


class SecondOrderProblem(LocalProblem, Protocol):
    """A local problem that knows its Hessian; of one client [d], never of a stack."""

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Return the Hessian of f at w times v."""

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        """Return x with (H + rho I) x = v, for the Hessian H of f at w."""


class SecondOrder:
    """A method whose client_update is given a SecondOrderProblem, so for convex problems."""


class HasPersonalModel(ABC):
    """A method that gives each client a model of its own beside theta."""

    @abstractmethod
    def personal_model(self, client: Any) -> Vector:
        """Return the model in a client's state."""


class SkipsCommunication(ABC):
    """A method whose clients all compute in every round, while only those selected communicate."""

    skip_probability: float  # of a round in which nobody communicates

    @abstractmethod
    def receive(self, server: Any, client: Any) -> Any:
        """Return what a client keeps once what it downloads has reached it, before its update."""


class CorrectsLateNewcomers(ABC):
    """A method for which theta at the time of a newcomer's upload matters, not the theta that it downloaded."""

    @abstractmethod
    def late_upload(self, upload: Any, *, then: Any, now: Any) -> Any:
        """Return what a newcomer's upload counts as, if it downloaded `then` and the newest download is `now`."""


class LetsGoOfClients(ABC):
    """A method whose server can let go of a client that has lost its state and begins anew."""

    @abstractmethod
    def without_client(self, server: Any) -> Any:
        """Return the server's state without the share of a client seen, which nobody knows: the mean share."""


class Invariant(NamedTuple):
    """A vector of the server's that is, up to rounding, a weighted mean over its clients' states."""

    name: str
    held: Vector
    share: Callable[[Any], Vector]  # of a client, given its state
    unseen: Vector | None  # the share of a client that was never applied; None: the mean is over the seen
    adds: Callable[[Any], Vector] | None = None  # what an upload adds to its client's share; None: that depends


class HasInvariant(ABC):
    """A method whose server's state promises something of its clients', so that a store can be held to it."""

    @abstractmethod
    def invariant(self, server: Any, *, initial: Vector, registered: float) -> Invariant | None:
        """Return the promise, None if the hyper-parameters make none.

        initial: theta^0. registered: the weight of all clients.
        """


def invariant_of(algorithm: AnyAlgorithm, server: Any, *, initial: Vector, registered: float) -> Invariant | None:
    """Return what a server's state promises of its clients', None if nothing."""
    if not isinstance(algorithm, HasInvariant):
        return None
    return algorithm.invariant(server, initial=initial, registered=registered)


def imbalance(
    invariant: Invariant, states: Iterable[tuple[float, Any]], *, registered: float, upload: Message = ()
) -> float:
    """Return the largest gap between what the server holds and the mean, relative to the largest share.

    `states` are those of the clients seen, with their weights; `registered` is the weight of all clients. upload: one,
    for its form alone, where clients keep what was held back of theirs.
    """
    held = invariant.held.double()
    total = held.new_zeros(held.shape)
    weight, largest = 0.0, float(held.abs().max())
    for own, state in states:
        share = _share(invariant, state, upload)
        total.add_(share, alpha=own)
        weight += own
        largest = max(largest, float(share.abs().max()))
    if invariant.unseen is not None:
        total.add_(invariant.unseen, alpha=registered - weight)
        weight = registered
    if not weight or not largest:
        return 0.0
    return float((held - total / weight).abs().max()) / largest


def _share(invariant: Invariant, state: Message, upload: Message) -> Vector:
    """Return a client's share: without what the server has not got yet, where something is held back."""
    known = invariant.share(own_fields(state))
    _, part = without_part(state, HeldBack)
    if part is None:
        return known
    assert invariant.adds is not None, f"{invariant.name} is not known while something is held back"
    return known - invariant.adds(with_vectors(upload, part.held_back))
