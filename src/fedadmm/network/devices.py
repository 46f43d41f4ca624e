"""The simulated devices of a federation: how fast each is, and when it is on. Seconds are counted from 0."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from fedadmm.core.per_client import Quantity, value_of
from fedadmm.core.seeds import stream
from fedadmm.network.settings import Availability, Clock

Interval = tuple[float, float]


class Device(NamedTuple):
    """What one client runs on."""

    speed: float  # gradients of single examples per second
    upload: float  # bytes per second
    download: float
    latency: float  # seconds of each message

    def exchange(self, *, bytes_down: int, bytes_up: int) -> float:
        """Return the seconds that a download and an upload take."""
        return 2 * self.latency + bytes_down / self.download + bytes_up / self.upload


class Hours(NamedTuple):
    """When a device is on: in these intervals of each period."""

    intervals: tuple[Interval, ...]  # rising, without overlaps, within 0..period
    period: float

    @property
    def on(self) -> float:
        """The seconds of a period that it is on."""
        return sum(until - since for since, until in self.intervals)

    def between(self, start: float, end: float) -> float:
        """Return for how many of these seconds it is on."""
        return self._until(end) - self._until(start)

    def end(self, start: float, seconds: float) -> float:
        """Return when it has been on for this many seconds since `start`."""
        if seconds <= 0:
            return start
        total = self._until(start) + seconds
        periods = max(0, math.ceil(total / self.on) - 1)
        rest = total - periods * self.on
        for since, until in self.intervals[:-1]:
            if rest <= until - since:
                break
            rest -= until - since
        else:
            since, _ = self.intervals[-1]
        return max(start + seconds, periods * self.period + since + rest)

    def _until(self, time: float) -> float:
        periods, rest = divmod(time, self.period)
        return periods * self.on + sum(min(max(rest - since, 0.0), until - since) for since, until in self.intervals)


class AlwaysOn:
    """A device that is never off."""

    def between(self, start: float, end: float) -> float:
        """Return for how many of these seconds it is on: all of them."""
        return end - start

    def end(self, start: float, seconds: float) -> float:
        """Return when it has been on for this many seconds since `start`."""
        return start + seconds


ALWAYS_ON = AlwaysOn()


class SimulatedDevices:
    """The devices of all clients; a client's is drawn when it is first asked for, from streams of its own."""

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int,
        devices: Mapping[str, Sequence[float]] | None = None,
        hours: Sequence[Hours] | None = None,
    ) -> None:
        """Begin; devices: what a file says, a column for each quantity. hours: when each is on, if a file says it."""
        self._clock, self._seed, self._devices, self._hours = clock, seed, devices or {}, hours
        self.device = cache(self._device)
        self.hours = cache(self._hours_of)

    def speed(self, client: int) -> float:
        """Return how many gradients of single examples a client's device takes in a second."""
        return self.device(client).speed

    def _device(self, client: int) -> Device:
        clock = self._clock
        return Device(
            self._quantity(client, "speed", clock.speed),
            self._quantity(client, "upload", clock.upload),
            self._quantity(client, "download", clock.download),
            self._quantity(client, "latency", clock.latency),
        )

    def _quantity(self, client: int, name: str, value: Quantity | None) -> float:
        if name in self._devices:
            return float(self._devices[name][client])
        if value is None:
            return math.inf
        return value_of(value, client, seed=self._seed, purpose=f"clock {name}")

    def _hours_of(self, client: int) -> Hours | AlwaysOn:
        availability = self._clock.availability
        if availability is None:
            return ALWAYS_ON
        if self._hours is not None:
            return self._hours[client]
        return self._drawn_hours(client, availability)

    def _drawn_hours(self, client: int, availability: Availability) -> Hours | AlwaysOn:
        period, share = availability.period, availability.share
        assert share is not None
        share = min(1.0, value_of(share, client, seed=self._seed, purpose="clock share"))
        if share == 1:
            return ALWAYS_ON
        since = period * stream(self._seed, "clock hours", client).random()
        until = since + share * period
        if until <= period:
            return Hours(((since, until),), period)
        return Hours(((0.0, until - period), (since, period)), period)
