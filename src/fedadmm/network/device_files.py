"""Devices and their hours from CSV files."""

import csv
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from fedadmm.core.errors import InputError
from fedadmm.core.per_client import check_length
from fedadmm.network.devices import Hours, Interval, SimulatedDevices
from fedadmm.network.settings import Clock

QUANTITIES = ("speed", "upload", "download", "latency")


def simulated_devices(clock: Clock, *, seed: int, num_clients: int) -> SimulatedDevices:
    """Return the devices of all clients; their files are read and checked here."""
    for name in QUANTITIES:
        check_length(f"clock.{name}", getattr(clock, name), num_clients)
    if clock.availability is not None:
        check_length("clock.availability.share", clock.availability.share, num_clients)
    devices = None if clock.devices is None else read_devices(Path(clock.devices), num_clients=num_clients)
    if devices is not None and clock.speed is None and "speed" not in devices:
        raise InputError(f"{clock.devices} has no column speed, and the clock has no speed; give one")
    for name in devices or ():
        if getattr(clock, name) not in (None, 0.0):
            raise InputError(
                f"{clock.devices} has a column {name}, and the clock has {name} too; leave out clock.{name}, "
                "or that column"
            )
    availability, hours = clock.availability, None
    if availability is not None and availability.trace is not None:
        path = Path(availability.trace)
        hours = read_hours(path, num_clients=num_clients, period=availability.period)
    return SimulatedDevices(clock, seed=seed, devices=devices, hours=hours)


def digests_of(clock: Clock | None) -> dict[str, str]:
    """Return what tells the content of a clock's files from another, by their names."""
    if clock is None:
        return {}
    names = (clock.devices, None if clock.availability is None else clock.availability.trace)
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest()[:10] for name in names if name is not None}


def read_devices(path: Path, *, num_clients: int) -> dict[str, list[float]]:
    """Return the quantities in a file that has a line for each client."""
    columns, rows = _table(path, required=("client",), optional=QUANTITIES)
    found: dict[int, list[float]] = {}
    names = [name for name in columns if name != "client"]
    for line, row in rows:
        client = _client(path, line, row, num_clients)
        if client in found:
            raise InputError(f"{path}, line {line}: client {client} is there twice; leave one line out")
        found[client] = [_number(path, line, row, name, least=0.0) for name in names]
        for name, value in zip(names, found[client], strict=True):
            if value == 0 and name != "latency":
                raise InputError(f"{path}, line {line}: {name}=0 would take for ever; use a number above 0")
    _check_complete(path, found, num_clients)
    return {name: [found[client][n] for client in range(num_clients)] for n, name in enumerate(names)}


def read_hours(path: Path, *, num_clients: int, period: float) -> list[Hours]:
    """Return when each client is on, from a file with a line for each interval: client, from, until."""
    _, rows = _table(path, required=("client", "from", "until"))
    found: dict[int, list[Interval]] = {}
    for line, row in rows:
        client = _client(path, line, row, num_clients)
        since, until = (_number(path, line, row, name, least=0.0) for name in ("from", "until"))
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


def _table(
    path: Path, *, required: Sequence[str], optional: Sequence[str] = ()
) -> tuple[list[str], Iterator[tuple[int, Mapping[str, str]]]]:
    """Return the columns of a file, and its rows with their line numbers."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}; give a CSV file") from error
    reader = csv.DictReader(lines, skipinitialspace=True)
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    for name in required:
        if name not in columns:
            raise InputError(
                f"{path} has no column {name}; its first line names the columns, {', '.join((*required, *optional))}"
            )
    for name in columns:
        if name not in (*required, *optional):
            raise InputError(f"{path} has a column {name!r}; the columns are {', '.join((*required, *optional))}")
    return columns, ((number, row) for number, row in enumerate(reader, start=2))


def _client(path: Path, line: int, row: Mapping[str, str], num_clients: int) -> int:
    text = (row["client"] or "").strip()
    if not text.isdigit() or int(text) >= num_clients:
        raise InputError(f"{path}, line {line}: client={text!r} is not an id; they run from 0 to {num_clients - 1}")
    return int(text)


def _number(path: Path, line: int, row: Mapping[str, str], name: str, *, least: float) -> float:
    try:
        value = float(row[name] or "")
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        raise InputError(f"{path}, line {line}: {name}={row[name]!r} is not a number from {least:g} on; fix it")
    return value


def _check_complete(path: Path, found: Mapping[int, object], num_clients: int) -> None:
    missing = [client for client in range(num_clients) if client not in found]
    if missing:
        raise InputError(
            f"{path} has no line for {len(missing)} of {num_clients} clients, such as {missing[0]}; add them"
        )
