"""Values that may differ from client to client: one for all, a list, or what a client's value is drawn from.

A value is kept as an experiment file says it, so that it prints, compares and saves as itself. `value_of` is the one
place where a client's value is looked up or drawn, and `check_length` the one where a list is held against the clients.
"""

import re
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import Annotated, Any, Literal, Protocol, Self, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np
from pydantic import BeforeValidator, ValidationInfo, model_validator

from fedadmm.core.errors import InputError
from fedadmm.core.schedules import check_rate
from fedadmm.core.seeds import stream
from fedadmm.core.settings import NonNegative, Positive, Probability, Settings, within

Value = TypeVar("Value")
DrawnValue = TypeVar("DrawnValue", covariant=True)


@runtime_checkable
class Drawn(Protocol[DrawnValue]):
    """What a client's value is drawn from."""

    def draw(self, generator: np.random.Generator) -> DrawnValue: ...


PerClient: TypeAlias = Value | tuple[Value, ...] | Drawn[Value]


def value_of(quantity: PerClient[Value], client: int, *, seed: int, purpose: str, round: int | None = None) -> Value:
    """Return a client's value; what is drawn is drawn once for each client, or anew in each round that is given."""
    kind: type = type(quantity)
    if _is_drawn(kind):
        return cast(Drawn[Value], quantity).draw(stream(seed, purpose, *(() if round is None else (round,)), client))
    return quantity[client] if isinstance(quantity, tuple) else cast(Value, quantity)


@cache  # to ask whether something follows a protocol takes as long as a small client's step
def _is_drawn(kind: type) -> bool:
    return issubclass(kind, Drawn)


def check_length(name: str, quantity: object, num_clients: int, *, what: str = "numbers") -> None:
    """Refuse a list that has not one value for each client."""
    if isinstance(quantity, tuple) and len(quantity) != num_clients:
        raise InputError(f"{name} lists {len(quantity)} {what} for {num_clients} clients; give one for each")


def check_positive(name: str, quantity: Any) -> Any:
    """Return a quantity with its list as a tuple; refuse numbers and schedules that are not above 0."""
    if quantity is None or isinstance(quantity, Distribution):
        return quantity
    for number in quantity if isinstance(quantity, list | tuple) else (quantity,):
        check_rate(name, number, positive=True)
    return tuple(quantity) if isinstance(quantity, list) else quantity


KEYS = {"uniform": ("low", "high"), "log_uniform": ("low", "high"), "lognormal": ("median", "sigma")}
# Bounds with which anything that is drawn is a finite number above 0.
Moderate = Annotated[float, within("a number from 1e-50 to 1e50", lambda x: 1e-50 <= x <= 1e50)]
Width = Annotated[float, within("a number above 0 and up to 20", lambda x: 0 < x <= 20)]


class Distribution(Settings):
    """What a quantity above 0 is drawn from, such as {distribution = "log_uniform", low = 50, high = 1000}.

    distribution = "log_uniform": "uniform" or "log_uniform" between low and high, or "lognormal".
    low = 50: the least value.
    high = 1000: the largest value.
    median = 100: of "lognormal".
    sigma = 0.5: of "lognormal", the standard deviation of the logarithm.
    """

    distribution: Literal["uniform", "log_uniform", "lognormal"]
    low: Moderate | None = None
    high: Moderate | None = None
    median: Moderate | None = None
    sigma: Width | None = None

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        table = {key: getattr(self, key) for key in ("low", "high", "median", "sigma")}
        given = {key: value for key, value in table.items() if value is not None}
        keys = KEYS[self.distribution]
        if sorted(given) != sorted(keys):
            raise InputError(
                f"a {self.distribution} distribution has {' and '.join(keys)}, not {', '.join(given) or 'nothing'}; "
                "give these keys"
            )
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InputError(f"low={self.low:g} is above high={self.high:g}; exchange them")
        return self

    def draw(self, generator: np.random.Generator) -> float:
        """Return one value."""
        if self.median is not None and self.sigma is not None:
            return float(self.median * np.exp(self.sigma * generator.standard_normal()))
        assert self.low is not None
        assert self.high is not None
        share = generator.random()
        if self.distribution == "uniform":
            return float(self.low + (self.high - self.low) * share)
        return float(self.low * (self.high / self.low) ** share)


class FallingDistribution(Distribution):
    """A distribution of values that fall over rounds: in round t a client's is what was drawn, over t^power.

    power = 2: 0 lets them stay. The other keys are those of a distribution.
    """

    power: NonNegative = 0.0


Quantity = Positive | tuple[Positive, ...] | Distribution


@dataclass(frozen=True)
class Range:
    """Whole numbers from low to high, of which each is as likely."""

    low: int
    high: int

    @property
    def mean(self) -> float:
        """The mean of what is drawn."""
        return (self.low + self.high) / 2

    def draw(self, generator: np.random.Generator) -> int:
        """Return one of the numbers."""
        return int(generator.integers(self.low, self.high + 1))


MOST = 10**9  # epochs of a visit: more would be a slip of the pen, and beyond what is added up exactly
REMEDY = 'use a number from 1 on, a range such as "1..5"'


def _read_number_or_range(value: Any, info: ValidationInfo) -> int | str:
    return _number_or_range(str(info.field_name), value, remedy=REMEDY.replace(", a", " or a"))


NumberOrRange = Annotated[int | str, BeforeValidator(_read_number_or_range)]


class Stragglers(Settings):
    """A share of the clients, drawn anew in each round, that do what they can; the others do all of their epochs.

    share = 0.4: the probability with which a client is such a one.
    epochs = "1..10": theirs; a number or a range.
    others = 10: the epochs of the others; a number or a range.
    """

    share: Probability
    epochs: NumberOrRange
    others: NumberOrRange

    @property
    def low(self) -> int:
        """The fewest epochs that a client may be asked for."""
        others = range_of(self.others).low
        return min(range_of(self.epochs).low, others) if self.share else others

    @property
    def mean(self) -> float:
        """The mean number of epochs."""
        return self.share * range_of(self.epochs).mean + (1 - self.share) * range_of(self.others).mean

    def draw(self, generator: np.random.Generator) -> int:
        """Return a client's epochs in a round."""
        return range_of(self.epochs if generator.random() < self.share else self.others).draw(generator)


Epochs = int | str | tuple[int, ...] | Stragglers


def read_epochs(value: Any) -> Epochs:
    """Return what a file says of the epochs as a number, a range, a list or stragglers; refuse the rest."""
    if isinstance(value, dict):
        try:
            return Stragglers(**value)
        except InputError as error:
            raise InputError(f"epochs: {error}") from None
    if isinstance(value, Stragglers):
        return value
    if isinstance(value, list | tuple) and value:
        return tuple(_number("epochs", number, remedy="list a whole number for each client") for number in value)
    return _number_or_range("epochs", value, remedy=f"{REMEDY}, or a list")


def range_of(numbers: int | str) -> Range:
    """Return the range that "1..5" describes; a number is a range of one."""
    low, _, high = str(numbers).partition("..")
    return Range(int(low), int(high or low))


def _number_or_range(name: str, value: Any, *, remedy: str) -> int | str:
    if not isinstance(value, str) or value.isdecimal():
        return _number(name, value, remedy=remedy)
    match = re.fullmatch(r"(\d+)\.\.(\d+)", value)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"{name}={value!r} is not a range; {remedy}")
    _check_most(name, int(match[2]), value)
    return value


def _number(name: str, value: Any, *, remedy: str) -> int:
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not (whole or (isinstance(value, str) and value.isdecimal())):
        raise InputError(f"{name}={value!r} is not a number of epochs; {remedy}")
    if int(value) < 1:
        raise InputError(f"{name}={value} does no work; {remedy}")
    _check_most(name, int(value), value)
    return int(value)


def _check_most(name: str, number: int, value: Any) -> None:
    if number > MOST:
        raise InputError(f"{name}={value!s:.30} is more work than can be done; use at most {MOST:,}")
