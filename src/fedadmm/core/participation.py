"""Who takes part in round t, and how much work each does; each answer needs no earlier round."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedadmm.core.errors import InputError

Ids: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Devices:
    """What is known of the registered clients: their number, and facts such as energy, one value a client."""

    num_clients: int
    facts: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


class Participation(Protocol):
    """A rule that names the clients of a round, in rising order and without repetition."""

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids: ...

    def check(self, num_clients: int) -> None:
        """Refuse a rule that cannot work for this many clients."""
        ...


@dataclass(frozen=True)
class Uniform:
    """The same number of clients in every round, drawn uniformly without replacement."""

    fraction: float

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids:
        """Return this round's clients; the cost does not grow with the number registered."""
        size = self.size(devices.num_clients)
        return np.sort(generator.choice(devices.num_clients, size=size, replace=False, shuffle=False))

    def check(self, num_clients: int) -> None:
        """Refuse a fraction that is none, or that selects nobody."""
        if not 0 < self.fraction <= 1:
            raise InputError(f"participation={self.fraction} is no fraction; use a number above 0 and up to 1")
        if self.size(num_clients) == 0:
            raise InputError(
                f"participation={self.fraction:g} selects none of {num_clients} clients; "
                f"use at least {1 / num_clients:g}"
            )

    def size(self, num_clients: int) -> int:
        """Return how many clients take part."""
        return round(self.fraction * num_clients)


@dataclass(frozen=True)
class Independent:
    """Every client decides for itself, with a probability of its own; a round may be empty."""

    probabilities: tuple[float, ...]

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids:
        """Return the clients whose coin fell on their side."""
        return np.flatnonzero(generator.random(devices.num_clients) < np.asarray(self.probabilities))

    def check(self, num_clients: int) -> None:
        """Refuse a list of the wrong length, a number that is no probability, and a list of zeros."""
        if len(self.probabilities) != num_clients:
            raise InputError(
                f"participation lists {len(self.probabilities)} probabilities for {num_clients} clients; "
                "give one for each"
            )
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
        """Return what the function chose, sorted, once it is known to be a set of registered clients."""
        raw = np.asarray(list(self.function(round, generator, devices)))
        if raw.size == 0:
            return np.empty(0, dtype=np.int64)
        if not np.issubdtype(raw.dtype, np.integer):
            raise InputError(f"participation chose {raw.dtype} values in round {round}; return whole client ids")
        ids = np.sort(raw.astype(np.int64))
        if ids[0] < 0 or ids[-1] >= devices.num_clients:
            stray = ids[0] if ids[0] < 0 else ids[-1]
            raise InputError(
                f"participation chose client {stray} in round {round}; ids run from 0 to {devices.num_clients - 1}"
            )
        if (ids[1:] == ids[:-1]).any():
            raise InputError(f"participation chose a client twice in round {round}; return each id once")
        return ids

    def check(self, num_clients: int) -> None:
        """Accept any function: what it returns is checked in every round."""


ParticipationRule: TypeAlias = float | Sequence[float] | Chooser | Participation


def participation_from(rule: ParticipationRule) -> Participation:
    """Return the rule behind a fraction, a list of probabilities or a function."""
    if isinstance(rule, int | float):
        return Uniform(float(rule))
    if isinstance(rule, Uniform | Independent | Chosen):
        return rule
    if callable(rule):
        return Chosen(rule)
    if isinstance(rule, str):
        raise InputError(f"participation={rule!r} is a string; use a fraction, a list of probabilities or a function")
    return Independent(tuple(float(p) for p in rule))  # type: ignore[union-attr]


class Work(Protocol):
    """A rule that says how many local epochs a client does in a round."""

    draws: ClassVar[bool]  # whether the generator matters

    def epochs(self, client: int, *, generator: np.random.Generator) -> int: ...

    def least(self, client: int) -> int:
        """Return the fewest epochs that a client may be asked for."""
        ...

    @property
    def mean(self) -> float:
        """The mean number of epochs over clients and rounds."""
        ...


@dataclass(frozen=True)
class FixedEpochs:
    """Everyone does the same number of epochs."""

    draws: ClassVar[bool] = False

    number: int

    def epochs(self, client: int, *, generator: np.random.Generator) -> int:
        """Return the number of epochs of a client."""
        return self.number

    def least(self, client: int) -> int:
        """Return the fewest epochs that a client may be asked for."""
        return self.number

    @property
    def mean(self) -> float:
        """The mean number of epochs over clients and rounds."""
        return float(self.number)


@dataclass(frozen=True)
class UniformEpochs:
    """Every client draws its epochs uniformly from low..high, anew in each round."""

    draws: ClassVar[bool] = True

    low: int
    high: int

    def epochs(self, client: int, *, generator: np.random.Generator) -> int:
        """Return the number of epochs of a client."""
        return int(generator.integers(self.low, self.high + 1))

    def least(self, client: int) -> int:
        """Return the fewest epochs that a client may be asked for."""
        return self.low

    @property
    def mean(self) -> float:
        """The mean number of epochs over clients and rounds."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class StragglerEpochs:
    """Every client is a straggler with probability `share`, anew in each round; both have a rule of their own."""

    draws: ClassVar[bool] = True

    share: float
    stragglers: FixedEpochs | UniformEpochs
    others: FixedEpochs | UniformEpochs

    def epochs(self, client: int, *, generator: np.random.Generator) -> int:
        """Return the number of epochs of a client."""
        is_straggler = generator.random() < self.share
        return (self.stragglers if is_straggler else self.others).epochs(client, generator=generator)

    def least(self, client: int) -> int:
        """Return the fewest epochs that a client may be asked for."""
        others = self.others.least(client)
        return min(self.stragglers.least(client), others) if self.share else others

    @property
    def mean(self) -> float:
        """The mean number of epochs over clients and rounds."""
        return self.share * self.stragglers.mean + (1 - self.share) * self.others.mean


@dataclass(frozen=True)
class ListedEpochs:
    """A list with the epochs of each client."""

    draws: ClassVar[bool] = False

    numbers: tuple[int, ...]

    def epochs(self, client: int, *, generator: np.random.Generator) -> int:
        """Return the number of epochs of a client."""
        return self.numbers[client]

    def least(self, client: int) -> int:
        """Return the fewest epochs that a client may be asked for."""
        return self.numbers[client]

    @property
    def mean(self) -> float:
        """The mean number of epochs over clients and rounds."""
        return sum(self.numbers) / len(self.numbers)
