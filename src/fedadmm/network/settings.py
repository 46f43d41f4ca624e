"""The settings of what is simulated: [clock], how long things take, and [faults], what is lost on the way."""

from typing import Annotated, Any, Literal, Self

from pydantic import field_validator, model_validator

from fedadmm.core import settings
from fedadmm.core.errors import InputError
from fedadmm.core.settings import Count, Distribution, Fraction, NonNegative, Positive, Probability, Quantity, Settings


class Availability(Settings):
    """When devices are on: a share of each period, at a time of their own, or as a CSV file says."""

    period: Positive  # seconds after which it begins anew
    share: Fraction | tuple[Fraction, ...] | Distribution | None = None  # of the period
    trace: str | None = None  # a CSV file with client, from, until: seconds within the period

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.share is None) == (self.trace is None):
            raise InputError("availability needs a share or a trace; give one of them")
        return self


Staleness = Annotated[int, settings.within("a whole number from 0 on, or leave it out", lambda n: n >= 0)]


class Asynchronous(Settings):
    """The server updates when some uploads have arrived, and does not wait for the others; a round is an update.

    As many clients are at work as a synchronous round would have: who has reported makes room for one that is free.
    """

    buffer: Count  # uploads that make an update
    # Updates that an upload may miss; the server waits for who would miss more.
    max_staleness: Staleness | None = None


class Clock(Settings):
    """How long things take.

    Each quantity is a number, a list, one per client, or {distribution = "log_uniform", low = 50, high = 1000}.

    deadline: seconds that a round may last. late: who cannot make it does as many epochs as fit ("less"), or is
        asked in vain ("drop"). Both are decided by the epochs that were asked for.
    """

    speed: Quantity | None = None  # gradients of single examples per second; None: the file has it
    upload: Quantity | None = None  # bytes per second; None: it takes no time
    download: Quantity | None = None
    latency: NonNegative | tuple[NonNegative, ...] | Distribution = 0.0  # seconds that a message takes beside its bytes
    devices: str | None = None  # a CSV file with client and any of speed, upload, download, latency
    availability: Availability | None = None  # None: always on
    deadline: Positive | None = None
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

    @model_validator(mode="after")
    def _check_clock(self) -> Self:
        if self.speed is None and self.devices is None:
            raise InputError(
                "the clock has no speed; give examples per second, such as speed = 100, or a file of devices"
            )
        if self.asynchronous is not None and self.deadline is not None:
            raise InputError(
                "a deadline ends a round, and an asynchronous server waits for no round; give one of the two"
            )
        return self


class Faults(Settings):
    """How often messages are lost, late or doubled, as probabilities for each client of a round."""

    lose_requests: Probability = 0.0
    lose_replies: Probability = 0.0
    duplicate: Probability = 0.0
    delay: Probability = 0.0  # the reply comes after the round has ended, by up to `delay_rounds` rounds
    delay_rounds: Count = 3
    away: Probability = 0.0  # the client goes away, and gets no request for `away_rounds` rounds
    away_rounds: Count = 3
