"""How a client trains: epochs, batches, learning rate."""

import re
from typing import Any, Literal

from pydantic import field_validator

from fedadmm.core.errors import InputError
from fedadmm.core.participation import FixedEpochs, ListedEpochs, StragglerEpochs, UniformEpochs, Work
from fedadmm.core.schedules import Rate, at, check_rate
from fedadmm.core.settings import Settings, at_least_one
from fedadmm.core.values import rate_from

REMEDY = 'use a number from 1 on, a range such as "1..5", or a list'


class Stragglers(Settings):
    """A share of the clients, drawn anew in each round, that do what they can; the others do all of their epochs."""

    share: float
    epochs: str  # a range, such as "1..10"
    others: int

    _check_others = field_validator("others")(at_least_one)

    @field_validator("share")
    @classmethod
    def _check_share(cls, value: float) -> float:
        if not 0 <= value <= 1:
            raise InputError(f"share={value} is no share of the clients; use a number from 0 to 1")
        return value

    @field_validator("epochs")
    @classmethod
    def _check_range(cls, value: str) -> str:
        _range(value)
        return value


Epochs = int | str | tuple[int, ...] | Stragglers


class Local(Settings):
    """The local solver: stochastic gradient descent over the client's own examples.

    epochs: a number, a range such as "1..5" (drawn anew for each client and round), a list, one per client,
        or {share = 0.4, epochs = "1..10", others = 10}: stragglers, and those that do all of their epochs.
    batch_size: a number, or "full".
    learning_rate: a number, or a schedule over rounds.
    """

    epochs: Epochs = 1
    batch_size: int | Literal["full"] = 10
    learning_rate: Rate = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0

    @field_validator("epochs", mode="before")
    @classmethod
    def _check_epochs(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("epochs")
    @classmethod
    def _check_epoch_numbers(cls, value: Epochs) -> Epochs:
        _work(value)
        return value

    @field_validator("batch_size", mode="before")
    @classmethod
    def _check_batch_size(cls, value: Any) -> Any:
        if value != "full" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f'batch_size={value!r} is no batch; use a whole number from 1 on, or "full"')
        return value

    @field_validator("learning_rate", mode="before")
    @classmethod
    def _check_learning_rate(cls, value: Any) -> Any:
        rate = rate_from("learning_rate", value)
        check_rate("learning_rate", rate, positive=True)
        return rate

    @field_validator("momentum", "weight_decay")
    @classmethod
    def _check_coefficients(cls, value: float, info: Any) -> float:
        if not 0 <= value < 1:
            raise InputError(f"{info.field_name}={value} is out of range; use a number from 0 to below 1")
        return value

    @property
    def work(self) -> Work:
        """The rule behind `epochs`."""
        return _work(self.epochs)

    def learning_rate_at(self, round: int) -> float:
        """Return the learning rate of a round."""
        return at(self.learning_rate, round)

    def check(self, num_clients: int) -> None:
        """Refuse a list of epochs that does not fit the number of clients."""
        if isinstance(self.epochs, tuple) and len(self.epochs) != num_clients:
            raise InputError(
                f"epochs lists {len(self.epochs)} numbers for {num_clients} clients; give one for each"
            )


def _work(epochs: Epochs) -> Work:
    if isinstance(epochs, Stragglers):
        return StragglerEpochs(epochs.share, _range(epochs.epochs), epochs.others)
    if isinstance(epochs, str):
        return _range(epochs)
    for number in epochs if isinstance(epochs, tuple) else (epochs,):
        if number < 1:
            raise InputError(f"epochs={number} does no work; {REMEDY}")
    return ListedEpochs(epochs) if isinstance(epochs, tuple) else FixedEpochs(epochs)


def _range(text: str) -> UniformEpochs:
    match = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"epochs={text!r} is no range; {REMEDY}")
    return UniformEpochs(int(match[1]), int(match[2]))
