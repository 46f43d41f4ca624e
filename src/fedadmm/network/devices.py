"""The simulated devices of a federation: how fast each is, and when it is on; drawn, or read from CSV files.

Seconds are counted from 0.
"""

import csv
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fedadmm.core.errors import InputError
from fedadmm.core.per_client import check_length, value_of
from fedadmm.core.seeds import stream
from fedadmm.network.settings import Clock

Interval = tuple[float, float]


class Device(NamedTuple):
    """What one client runs on."""

    speed: float  # gradients of single examples per second
    upload: float = math.inf  # bytes per second
    download: float = math.inf
    latency: float = 0.0  # seconds of each message

    def exchange(self, *, bytes_down: int, bytes_up: int) -> float:
        """Return the seconds that a download and an upload take."""
        return 2 * self.latency + bytes_down / self.download + bytes_up / self.upload


QUANTITIES = Device._fields


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

    def __init__(self, clock: Clock, *, seed: int, hours: Sequence[Hours] | None = None) -> None:
        """Begin; hours: when each is on, if a file says it."""
        self._clock, self._seed, self._hours = clock, seed, hours
        self.device = cache(self._device)
        self.hours = cache(self._hours_of)

    def speed(self, client: int) -> float:
        """Return how many gradients of single examples a client's device takes in a second."""
        return self.device(client).speed

    def _device(self, client: int) -> Device:
        given = {name: getattr(self._clock, name) for name in QUANTITIES}
        values = {
            name: value_of(quantity, client, seed=self._seed, purpose=f"clock {name}")
            for name, quantity in given.items()
            if quantity is not None
        }
        return Device(**values)

    def _hours_of(self, client: int) -> Hours | AlwaysOn:
        availability = self._clock.availability
        if availability is None:
            return ALWAYS_ON
        if self._hours is not None:
            return self._hours[client]
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


def simulated_devices(clock: Clock, *, seed: int, num_clients: int) -> SimulatedDevices:
    """Return the devices of all clients; their files are read and checked here."""
    for name in QUANTITIES:
        check_length(f"clock.{name}", getattr(clock, name), num_clients)
    if clock.availability is not None:
        check_length("clock.availability.share", clock.availability.share, num_clients)
    columns = {} if clock.devices is None else read_devices(Path(clock.devices), num_clients=num_clients)
    if clock.speed is None and "speed" not in columns:
        raise InputError(f"{clock.devices} has no column speed, and the clock has no speed; give one")
    for name in columns:
        if getattr(clock, name) not in (None, 0.0):
            raise InputError(
                f"{clock.devices} has a column {name}, and the clock has {name} too; leave out clock.{name}, "
                "or that column"
            )
    availability, hours = clock.availability, None
    if availability is not None and availability.trace is not None:
        path = Path(availability.trace)
        hours = read_hours(path, num_clients=num_clients, period=availability.period)
    return SimulatedDevices(clock.model_copy(update=columns), seed=seed, hours=hours)


def digests_of(clock: Clock | None) -> dict[str, str]:
    """Return what tells the content of a clock's files from another, by their names."""
    if clock is None:
        return {}
    names = (clock.devices, None if clock.availability is None else clock.availability.trace)
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest()[:10] for name in names if name is not None}


def read_devices(path: Path, *, num_clients: int) -> dict[str, tuple[float, ...]]:
    """Return the quantities in a file that has a line for each client."""
    found: dict[int, dict[str, float]] = {}
    for line, client, values in _rows(path, num_clients, optional=QUANTITIES):
        if client in found:
            raise InputError(f"{path}, line {line}: client {client} is there twice; leave one line out")
        for name, value in values.items():
            if value == 0 and name != "latency":
                raise InputError(f"{path}, line {line}: {name}=0 would take forever; use a number above 0")
        found[client] = values
    _check_complete(path, found, num_clients)
    return {name: tuple(found[client][name] for client in range(num_clients)) for name in found[0]}


def read_hours(path: Path, *, num_clients: int, period: float) -> list[Hours]:
    """Return when each client is on, from a file with a line for each interval: client, from, until."""
    found: dict[int, list[Interval]] = {}
    for line, client, values in _rows(path, num_clients, required=("from", "until")):
        since, until = values["from"], values["until"]
        if not since < until <= period:
            raise InputError(
                f"{path}, line {line}: from {since:g} until {until:g} is not within the period 0..{period:g}; fix it"
            )
        found.setdefault(client, []).append((since, until))
    _check_complete(path, found, num_clients)
    return [Hours(_in_order(path, client, found[client]), period) for client in range(num_clients)]


def _in_order(path: Path, client: int, intervals: list[Interval]) -> tuple[Interval, ...]:
    ordered = sorted(intervals)
    for (_, until), (since, _) in pairwise(ordered):
        if since < until:
            raise InputError(
                f"{path}: client {client} is on from {since:g} and until {until:g}, which overlap; join the lines"
            )
    return tuple(ordered)


def _rows(
    path: Path, num_clients: int, *, required: Sequence[str] = (), optional: Sequence[str] = ()
) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield the lines of a file: their numbers, their clients, and the other columns."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}; give a CSV file") from error
    reader = csv.DictReader(lines, skipinitialspace=True)
    reader.fieldnames = columns = [name.strip() for name in reader.fieldnames or ()]
    known = ("client", *required, *optional)
    for name in ("client", *required):
        if name not in columns:
            raise InputError(f"{path} has no column {name}; its first line names the columns, {', '.join(known)}")
    for name in columns:
        if name not in known:
            raise InputError(f"{path} has a column {name!r}; the columns are {', '.join(known)}")
    for line, row in enumerate(reader, start=2):
        text = (row.pop("client") or "").strip()
        if not text.isdecimal() or int(text) >= num_clients:
            raise InputError(f"{path}, line {line}: client={text!r} is not an id; they run from 0 to {num_clients - 1}")
        yield line, int(text), {name: _number(path, line, name, row[name]) for name in columns if name != "client"}


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(f"{path}, line {line}: {name}={text!r} is not a number from 0 on; fix it")
    return value


def _check_complete(path: Path, found: Mapping[int, object], num_clients: int) -> None:
    missing = [client for client in range(num_clients) if client not in found]
    if missing:
        raise InputError(
            f"{path} has no line for {len(missing)} of {num_clients} clients, such as {missing[0]}; add them"
        )
