"""Who takes part in round t; each answer needs no earlier round."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedadmm.core.errors import InputError, calling, name_of
from fedadmm.core.per_client import check_length

Ids: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Devices:
    """What is known of the registered clients: their number, and facts such as energy, one value a client."""

    num_clients: int
    facts: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


@runtime_checkable
class Participation(Protocol):
    """A rule that names the clients of a round, in rising order and without repetition."""

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids: ...

    def check(self, num_clients: int) -> None:
        """Refuse a rule that cannot work for this many clients."""


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise InputError(f"participation={fraction} is not a fraction; use a number above 0 and up to 1")


@dataclass(frozen=True)
class Uniform:
    """The same number of clients in every round, drawn uniformly without replacement."""

    fraction: float

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids:
        """Return this round's clients; the cost does not grow with the number registered."""
        size = self.size(devices.num_clients)
        return np.sort(generator.choice(devices.num_clients, size=size, replace=False, shuffle=False))

    def check(self, num_clients: int) -> None:
        """Refuse what is not a fraction, or that selects nobody."""
        _check_fraction(self.fraction)
        if self.size(num_clients) == 0:
            raise InputError(
                f"participation={self.fraction:g} selects none of {num_clients} clients; "
                f"use at least {1 / num_clients:g}"
            )

    def size(self, num_clients: int) -> int:
        """Return how many clients take part."""
        return round(self.fraction * num_clients)


@dataclass(frozen=True)
class Poisson:
    """Every client decides for itself, all with the same probability; a round may be empty."""

    fraction: float

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids:
        """Return the clients whose coin fell on their side."""
        return np.flatnonzero(generator.random(devices.num_clients) < self.fraction)

    def check(self, num_clients: int) -> None:
        """Refuse what is not a fraction."""
        _check_fraction(self.fraction)


@dataclass(frozen=True)
class Independent:
    """Every client decides for itself, with a probability of its own; a round may be empty."""

    probabilities: tuple[float, ...]

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids:
        """Return the clients whose coin fell on their side."""
        return np.flatnonzero(generator.random(devices.num_clients) < np.asarray(self.probabilities))

    def check(self, num_clients: int) -> None:
        """Refuse a list of the wrong length, a number that is not a probability, and a list of zeros."""
        check_length("participation", self.probabilities, num_clients, what="probabilities")
        for client, probability in enumerate(self.probabilities):
            if not 0 <= probability <= 1:
                raise InputError(f"participation of client {client} is {probability}; use a probability from 0 to 1")
        if not any(self.probabilities):
            raise InputError("participation is 0 for every client; give at least one a positive probability")


Chooser: TypeAlias = Callable[[int, np.random.Generator, Devices], Sequence[int]]


@dataclass(frozen=True)
class Chosen:
    """A user's function of (round, generator, devices) that returns the ids of the clients to take part."""

    function: Chooser

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids:
        """Return what the function chose, once it is known to be a set of registered clients."""
        called = f"participation {name_of(self.function)}, called with (round, generator, devices) in round {round},"
        with calling(called, remedy="return the ids of the clients that take part"):
            raw = np.asarray(list(self.function(round, generator, devices)))
        return _checked(raw, round, devices)

    def check(self, num_clients: int) -> None:
        """Accept any function: what it returns is checked in every round."""


def selected(rule: Participation, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids:
    """Return the clients of a round by any rule, in rising order."""
    if isinstance(rule, Uniform | Poisson | Independent | Chosen):
        return rule.select(round, devices=devices, generator=generator)
    with calling(f"select of participation {name_of(rule)}, in round {round},"):
        raw = np.asarray(rule.select(round, devices=devices, generator=generator))
    return _checked(raw, round, devices)


def _checked(raw: npt.NDArray[Any], round: int, devices: Devices) -> Ids:
    """Return ids, sorted, once they are known to be a set of registered clients."""
    if raw.size == 0:
        return np.empty(0, dtype=np.int64)
    if raw.ndim != 1 or not np.issubdtype(raw.dtype, np.integer):
        kind = "lists" if raw.ndim > 1 else f"{raw.dtype} values"
        raise InputError(f"participation chose {kind} in round {round}; return whole client ids")
    ids = np.sort(raw.astype(np.int64))
    if ids[0] < 0 or ids[-1] >= devices.num_clients:
        stray = ids[0] if ids[0] < 0 else ids[-1]
        raise InputError(
            f"participation chose client {stray} in round {round}; ids run from 0 to {devices.num_clients - 1}"
        )
    if (ids[1:] == ids[:-1]).any():
        raise InputError(f"participation chose a client twice in round {round}; return each id once")
    return ids


ParticipationRule: TypeAlias = float | Sequence[float] | Chooser | Participation


def participation_from(rule: ParticipationRule) -> Participation:
    """Return the rule behind a fraction, a list of probabilities or a function."""
    if isinstance(rule, Real) and not isinstance(rule, bool):
        return Uniform(float(rule))
    if isinstance(rule, Participation):
        return rule
    if callable(rule):
        return Chosen(rule)
    if isinstance(rule, str):
        raise InputError(f"participation={rule!r} is a string; use a fraction, a list of probabilities or a function")
    try:
        probabilities = np.asarray(rule, dtype=np.float64)
    except (TypeError, ValueError):
        probabilities = np.empty(())
    if probabilities.ndim != 1 or not isinstance(rule, Sequence | np.ndarray):
        raise InputError(f"participation={rule!r} is not a rule; use a fraction, a list of probabilities or a function")
    return Independent(tuple(probabilities.tolist()))
