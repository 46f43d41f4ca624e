"""The settings of what is simulated: [clock], how long things take, and [faults], what is lost on the way."""

from typing import Annotated, Any, Literal, Self

from pydantic import field_validator, model_validator

from fedadmm.core.errors import InputError
from fedadmm.core.per_client import Distribution, Quantity
from fedadmm.core.settings import Count, Fraction, NonNegative, Positive, Probability, Settings, within


class Availability(Settings):
    """When devices are on: a share of each period, at a time of their own, or as a CSV file says.

    period = 86400: seconds after which it begins anew.
    share = 0.3: of the period in which a device is on; a number, a list, one per client, or a distribution.
    trace = "trace.csv": a CSV file with client, from, until, in seconds within the period; in the place of share.
    """

    period: Positive
    share: Fraction | tuple[Fraction, ...] | Distribution | None = None
    trace: str | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.share is None) == (self.trace is None):
            raise InputError("availability needs a share or a trace; give one of them")
        return self


Staleness = Annotated[int, within("a whole number from 0 on, or leave it out", lambda n: n >= 0)]


class Asynchronous(Settings):
    """The server updates when some uploads have arrived, and does not wait for the others; a round is an update.

    As many clients are at work as a synchronous round would have: who has reported makes room for one that is free.

    buffer = 5: uploads that make an update.
    max_staleness = 10: updates that an upload may miss; the server waits for who would miss more. Left out: any number.
    """

    buffer: Count
    max_staleness: Staleness | None = None


class Clock(Settings):
    """How long things take.

    Each quantity is a number, a list, one per client, or {distribution = "log_uniform", low = 50, high = 1000}.

    speed = 100: gradients of single examples per second; left out where the file of `devices` has it.
    upload = 1e6: bytes per second; left out, it takes no time.
    download = 1e7: bytes per second; left out, it takes no time.
    latency = 0.1: seconds that a message takes beside its bytes.
    devices = "devices.csv": a CSV file with client and any of speed, upload, download, latency.
    availability = {period = 86400, share = 0.3}: when devices are on; left out, always.
    deadline = 60: seconds that a round may last.
    late = "drop": who cannot make the deadline does as many epochs as fit ("less"), or its answer is dropped ("drop").
        Both are decided by the epochs that were asked for.
    asynchronous = {buffer = 5}: the server updates when some uploads have arrived; left out, it waits for all.
    """

    speed: Quantity | None = None
    upload: Quantity | None = None
    download: Quantity | None = None
    latency: NonNegative | tuple[NonNegative, ...] | Distribution = 0.0
    devices: str | None = None
    availability: Availability | None = None
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
            f"asynchronous={value!r} does not say how many uploads make an update; write asynchronous = "
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
    """How often messages are lost, late or doubled, as probabilities for each client of a round.

    lose_requests = 0.1: the request is lost, and the client does nothing.
    lose_replies = 0.1: the client trains, and its reply is lost.
    duplicate = 0.1: the request and the reply come twice.
    delay = 0.1: the reply comes after the round has ended, by up to `delay_rounds` rounds.
    delay_rounds = 3: the longest delay.
    away = 0.1: the client goes away, and gets no request for `away_rounds` rounds.
    away_rounds = 3: how long it stays away.
    """

    lose_requests: Probability = 0.0
    lose_replies: Probability = 0.0
    duplicate: Probability = 0.0
    delay: Probability = 0.0
    delay_rounds: Count = 3
    away: Probability = 0.0
    away_rounds: Count = 3
