"""How many epochs a client does, as a file says it."""

import re
from numbers import Integral
from typing import Any

from pydantic import ValidationInfo, field_validator

from fedadmm.core.errors import InputError
from fedadmm.core.participation import FixedEpochs, ListedEpochs, StragglerEpochs, UniformEpochs, Work
from fedadmm.core.settings import Settings

REMEDY = 'use a number from 1 on, a range such as "1..5"'


class Stragglers(Settings):
    """A share of the clients, drawn anew in each round, that do what they can; the others do all of their epochs."""

    share: float
    epochs: int | str  # a number, or a range such as "1..10"
    others: int | str

    @field_validator("share")
    @classmethod
    def _check_share(cls, value: float) -> float:
        if not 0 <= value <= 1:
            raise InputError(f"share={value} is no share of the clients; use a number from 0 to 1")
        return value

    @field_validator("epochs", "others", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> int | str:
        return _number_or_range(str(info.field_name), value, remedy=REMEDY.replace(", a", " or a"))


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
    if isinstance(value, list | tuple):
        return tuple(_number("epochs", number, remedy="list a whole number for each client") for number in value)
    return _number_or_range("epochs", value, remedy=f"{REMEDY}, or a list")


def work_of(epochs: Epochs) -> Work:
    """Return the rule behind the epochs."""
    if isinstance(epochs, Stragglers):
        return StragglerEpochs(epochs.share, _drawn(epochs.epochs), _drawn(epochs.others))
    return ListedEpochs(epochs) if isinstance(epochs, tuple) else _drawn(epochs)


def _drawn(epochs: int | str) -> FixedEpochs | UniformEpochs:
    if isinstance(epochs, int):
        return FixedEpochs(epochs)
    low, _, high = epochs.partition("..")
    return UniformEpochs(int(low), int(high))


def _number_or_range(name: str, value: Any, *, remedy: str) -> int | str:
    if not isinstance(value, str) or value.isdecimal():
        return _number(name, value, remedy=remedy)
    match = re.fullmatch(r"(\d+)\.\.(\d+)", value)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"{name}={value!r} is no range; {remedy}")
    return value


def _number(name: str, value: Any, *, remedy: str) -> int:
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not (whole or (isinstance(value, str) and value.isdecimal())):
        raise InputError(f"{name}={value!r} is no number of epochs; {remedy}")
    if int(value) < 1:
        raise InputError(f"{name}={value} does no work; {remedy}")
    return int(value)
