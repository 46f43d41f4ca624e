"""Hyper-parameters as functions of the round: values that print, compare and save as themselves; tables in and out."""

import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from fedadmm.core.errors import InputError


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a schedule, each of them checked; a whole number counts rounds."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and (isinstance(value, bool) or not isinstance(value, Integral)):
                raise InputError(f"{field.name}={value!r} counts rounds; use a whole number such as 20")
            if isinstance(value, bool) or not isinstance(value, Real):
                raise InputError(f"{field.name}={value!r} is not a number; use one such as 0.1 or 2")

    def values(self) -> tuple[float, ...]:
        """Return the extreme values, for validation."""
        return tuple(getattr(self, field.name) for field in fields(self) if field.type is float)


@dataclass(frozen=True)
class Constant(_Numbers):
    """The same value in every round."""

    value: float

    def at(self, round: int) -> float:
        """Return the value in a round, counted from 1."""
        return self.value


@dataclass(frozen=True)
class Step(_Numbers):
    """One value before a round, another from that round on."""

    before: float
    after: float
    at_round: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at_round < 1:
            raise InputError(f"at_round={self.at_round} is not a round; use a whole number from 1 on, such as 20")

    def at(self, round: int) -> float:
        """Return the value in a round, counted from 1."""
        return self.before if round < self.at_round else self.after


@dataclass(frozen=True)
class Cosine(_Numbers):
    """Half a cosine from `start` in round 1 to `end` in round `length`, and `end` from there on."""

    start: float
    end: float
    length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 2:
            raise InputError(f"length={self.length} leaves a cosine schedule no room; use at least 2 rounds")

    def at(self, round: int) -> float:
        """Return the value in a round, counted from 1."""
        share = min(max(round - 1, 0) / (self.length - 1), 1.0)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * share)) / 2


def over_rounds(round: int, power: float) -> float:
    """Return round^power, infinity where that is too large for a number."""
    try:
        return float(max(round, 1)) ** power
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Power(_Numbers):
    """`start` in round 1, and `start` / round^`power` in each."""

    start: float
    power: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.power) and self.power >= 0):
            raise InputError(f"power={self.power} is out of range; use a finite number of at least 0, such as 2")

    def at(self, round: int) -> float:
        """Return the value in a round, counted from 1."""
        return self.start / over_rounds(round, self.power)

    def values(self) -> tuple[float, ...]:
        """Return the extreme values, for validation; the other end is 0, which no round reaches."""
        return (self.start,)


Schedule: TypeAlias = Constant | Step | Cosine | Power
Rate: TypeAlias = float | Schedule

SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "step": Step, "cosine": Cosine, "power": Power}


def at(rate: Rate, round: int) -> float:
    """Return the value of a number or a schedule in a round, counted from 1."""
    return rate if isinstance(rate, int | float) else rate.at(round)


def rate_from(name: str, value: Any) -> Rate:
    """Return the schedule that a table such as {schedule = "step", ...} describes; other values as they are."""
    if not isinstance(value, dict):
        return value
    table = dict(value)
    kind = table.pop("schedule", None)
    if not isinstance(kind, str) or kind not in SCHEDULES:
        raise InputError(f"{name} has schedule={kind!r}; use one of {', '.join(SCHEDULES)}")
    schedule = SCHEDULES[kind]
    keys = [field.name for field in fields(schedule)]
    if sorted(table) != sorted(keys):
        raise InputError(f"{name} has the keys {', '.join(value)}; a {kind} schedule has {', '.join(keys)} beside it")
    try:
        return schedule(**table)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def to_plain(value: Any) -> Any:
    """Return a schedule as its table, and any other value as it is."""
    for kind, schedule in SCHEDULES.items():
        if isinstance(value, schedule):
            return {"schedule": kind, **asdict(value)}
    return value


def check_rate(name: str, rate: object, *, positive: bool, method: str = "") -> None:
    """Refuse a rate that is neither a number nor a schedule, or whose values are out of range."""
    if isinstance(rate, bool) or not isinstance(rate, int | float | Schedule):
        raise InputError(f"{name}={rate!r} is neither a number nor a schedule; use a number such as 0.1")
    values = (rate,) if isinstance(rate, int | float) else rate.values()
    for value in values:
        if not 0 <= value <= sys.float_info.max or (positive and value == 0):
            bound = "greater than 0" if positive else "of at least 0"
            raise InputError(f"{name}={value} is out of range; use a finite number {bound}")


def check_constant(name: str, rate: object, *, method: str, positive: bool) -> None:
    """Refuse a rate that changes over the rounds, or that check_rate refuses."""
    check_rate(name, rate, positive=positive)
    if not isinstance(rate, int | float):
        raise InputError(f"{name}={rate} is a schedule; {method} needs one number for all rounds, such as 0.1")


def check_fields(method: Any) -> None:
    """Refuse a field of a dataclass that its type does not allow: a Literal, or one of the ranges below."""
    for field in fields(method):
        name, kind, value = field.name, field.type, getattr(method, field.name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            choices = " or ".join(f'"{choice}"' for choice in get_args(kind))
            raise InputError(f"{name}={value!r} is unknown; use {choices}")
        as_written = getattr(kind, "__name__", kind)
        if as_written in ("int", "float") and isinstance(value, str | list | tuple | dict):
            raise InputError(f"{name}={value!r} is not a number; {type(method).__name__} has `{name}: {as_written}`")
        for check in getattr(kind, "__metadata__", ()):
            check(name, value, method=type(method).__name__)


def within(numbers: str, holds: Callable[[float], bool]) -> Callable[..., None]:
    """Return the check that a value is one of some numbers, which are given in words and as a test."""

    def check(name: str, value: object, *, method: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name}={value!r} is not a number; use {numbers}")
        if not holds(value):
            raise InputError(f"{name}={value!r} is out of range; use {numbers}")

    return check


def or_auto(check: Callable[..., None]) -> Callable[..., None]:
    """Return a check that takes "auto" as well, and says so."""

    def check_unless_auto(name: str, value: object, *, method: str) -> None:
        if isinstance(value, str) and value != "auto":
            raise InputError(f'{name}={value!r} is unknown; use a number or "auto"')
        if value != "auto":
            check(name, value, method=method)

    return check_unless_auto


def _is_decay(share: float) -> bool:
    return 0 <= share < 1


PositiveRate = Annotated[Rate, partial(check_rate, positive=True)]
NonNegativeRate = Annotated[Rate, partial(check_rate, positive=False)]
PositiveConstant = Annotated[float, partial(check_constant, positive=True)]
NonNegativeConstant = Annotated[float, partial(check_constant, positive=False)]
Decay = Annotated[float, within("a number from 0 to below 1", _is_decay)]  # what stays of a memory
ConstantOrAuto = Annotated[float | Literal["auto"], or_auto(partial(check_constant, positive=False))]
DecayOrAuto = Annotated[float | Literal["auto"], or_auto(within('a number from 0 to below 1, or "auto"', _is_decay))]
