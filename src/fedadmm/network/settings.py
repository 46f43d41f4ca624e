"""The settings of what is simulated: [clock], how long things take, and [faults], what is lost on the way."""

from typing import Any, Literal, Self

from pydantic import ValidationInfo, field_validator, model_validator

from fedadmm.core.errors import InputError
from fedadmm.core.per_client import Distribution
from fedadmm.core.settings import Settings, at_least_one

Quantity = float | tuple[float, ...] | Distribution


def _quantity(value: Any) -> Any:
    """Read a number, a list or a distribution's table."""
    return Distribution(**value) if isinstance(value, dict) else value


def _positive(value: Any, info: ValidationInfo) -> Any:
    """Validate numbers, if they are some, as above 0."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, float) and not number > 0:
            raise InputError(f"{info.field_name}={number:g} is out of range; use a number above 0")
    return value


class Availability(Settings):
    """When devices are on: a share of each period, at a time of their own, or as a CSV file says."""

    period: float  # seconds after which it begins anew
    share: Quantity | None = None  # of the period
    trace: str | None = None  # a CSV file with client, from, until: seconds within the period

    _read_share = field_validator("share", mode="before")(_quantity)
    _check_positive = field_validator("period", "share")(_positive)

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.share is None) == (self.trace is None):
            raise InputError("availability needs a share or a trace; give one of them")
        for share in self.share if isinstance(self.share, tuple) else (self.share,):
            if isinstance(share, float) and share > 1:
                raise InputError(f"share={share:g} is more than all of the time; use a number up to 1")
        return self


class Asynchronous(Settings):
    """The server updates when some uploads have arrived, and does not wait for the others; a round is an update.

    As many clients are at work as a synchronous round would have: who has reported makes room for one that is free.
    """

    buffer: int  # uploads that make an update
    max_staleness: int | None = None  # updates that an upload may miss; the server waits for who would miss more

    _check_buffer = field_validator("buffer")(at_least_one)

    @field_validator("max_staleness")
    @classmethod
    def _check_staleness(cls, value: int | None) -> int | None:
        if value is not None and value < 0:
            raise InputError(f"max_staleness={value} is out of range; use a whole number from 0 on, or leave it out")
        return value


class Clock(Settings):
    """How long things take.

    Each quantity is a number, a list, one per client, or {distribution = "log_uniform", low = 50, high = 1000}.

    deadline: seconds that a round may last. late: who cannot make it does as many epochs as fit ("less"), or is
        asked in vain ("drop"). Both are decided by the epochs that were asked for.
    """

    speed: Quantity | None = None  # gradients of single examples per second; None: the file has it
    upload: Quantity | None = None  # bytes per second; None: it takes no time
    download: Quantity | None = None
    latency: Quantity = 0.0  # seconds that a message takes beside its bytes
    devices: str | None = None  # a CSV file with client and any of speed, upload, download, latency
    availability: Availability | None = None  # None: always on
    deadline: float | None = None
    late: Literal["less", "drop"] = "less"
    asynchronous: Asynchronous | None = None

    @field_validator("asynchronous", mode="before")
    @classmethod
    def _check_asynchronous(cls, value: Any) -> Any:
        if value is None or isinstance(value, dict | Asynchronous):
            return value
        if value is False:
            raise InputError("asynchronous=False says nothing; leave it out, and the server waits")
        buffer = value if isinstance(value, int) and value is not True else 5
        raise InputError(
            f"asynchronous={value!r} says not how many uploads make an update; write asynchronous = "
            f"{{buffer = {buffer}}}, or on the command line --set clock.asynchronous.buffer={buffer}"
        )

    _read_quantities = field_validator("speed", "upload", "download", "latency", mode="before")(_quantity)
    _check_positive = field_validator("speed", "upload", "download", "deadline")(_positive)

    @model_validator(mode="after")
    def _check_clock(self) -> Self:
        if self.speed is None and self.devices is None:
            raise InputError(
                "the clock has no speed; give examples per second, such as speed = 100, or a file of devices"
            )
        for seconds in self.latency if isinstance(self.latency, tuple) else (self.latency,):
            if isinstance(seconds, float) and not seconds >= 0:
                raise InputError(f"latency={seconds:g} is out of range; use seconds from 0 on")
        if self.asynchronous is not None and self.deadline is not None:
            raise InputError(
                "a deadline ends a round, and an asynchronous server waits for no round; give one of the two"
            )
        return self


class Faults(Settings):
    """How often messages are lost, late or doubled, as probabilities for each client of a round."""

    lose_requests: float = 0.0
    lose_replies: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0  # the reply comes after the round has ended, by up to `delay_rounds` rounds
    delay_rounds: int = 3
    away: float = 0.0  # the client goes away, and gets no request for `away_rounds` rounds
    away_rounds: int = 3

    _check_counts = field_validator("delay_rounds", "away_rounds")(at_least_one)

    @field_validator("lose_requests", "lose_replies", "duplicate", "delay", "away")
    @classmethod
    def _check_probability(cls, value: float, info: ValidationInfo) -> float:
        if not 0 <= value <= 1:
            raise InputError(f"{info.field_name}={value} is not a probability; use a number from 0 to 1")
        return value
