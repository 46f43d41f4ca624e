"""How exact a local solve has to be, and how much time a client has for it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedadmm.core.errors import InputError
from fedadmm.core.per_client import Distribution
from fedadmm.core.schedules import Power, Rate, at, check_rate
from fedadmm.core.seeds import stream
from fedadmm.core.values import rate_from


class FallingDistribution(Distribution):
    """A tolerance that is drawn once for each client; in round t it is that over t^power."""

    power: float = 0.0


Tolerance = Rate | tuple[float, ...] | FallingDistribution
Speed = float | tuple[float, ...] | Distribution | str


def read_tolerance(value: Any) -> Any:
    """Return what a file says of the tolerance as a number, a schedule, a list or a distribution; refuse the rest."""
    if isinstance(value, dict) and "distribution" in value:
        value = FallingDistribution(**value)
    if isinstance(value, FallingDistribution):
        Power(1.0, value.power)
        return value
    if isinstance(value, list | tuple):
        for number in value:
            check_rate("tolerance", number, positive=True)
        return tuple(value)
    rate = rate_from("tolerance", value)
    if rate is not None:
        check_rate("tolerance", rate, positive=True)
    return rate


def tolerance_at(tolerance: Tolerance, round: int, *, client: int, seed: int) -> float:
    """Return the epsilon_i of a client in a round: it may stop where |grad L_i|^2 <= epsilon_i."""
    if isinstance(tolerance, tuple):
        return tolerance[client]
    if isinstance(tolerance, FallingDistribution):
        return Power(tolerance.draw(stream(seed, "accuracy", client)), tolerance.power).at(round)
    return at(tolerance, round)


def read_speed(value: Any) -> Any:
    """Return what a file says of the devices' speed; refuse what is none."""
    if isinstance(value, dict):
        return Distribution(**value)
    if isinstance(value, str | Distribution) or value is None:
        return value
    for number in value if isinstance(value, list | tuple) else (value,):
        check_rate("speed", number, positive=True)
    return tuple(value) if isinstance(value, list) else value


def check_speed(speed: Speed | None, *, num_clients: int, facts: Mapping[str, Any]) -> None:
    """Refuse a fact that the devices do not have, or that is no speed."""
    if not isinstance(speed, str):
        return
    if speed not in facts:
        raise InputError(
            f"speed={speed!r} is no fact of the devices, which have {', '.join(facts) or 'none'}; "
            "name one of them, or give examples per second"
        )
    values = np.asarray(facts[speed])
    if values.shape != (num_clients,) or not (np.isfinite(values) & (values > 0)).all():
        raise InputError(f"the fact {speed!r} is no speed of {num_clients} devices; give each a finite number above 0")


def speed_of(speed: Speed, *, client: int, seed: int, facts: Mapping[str, Sequence[float]]) -> float:
    """Return how many gradients of single examples a client's device takes in a second."""
    if isinstance(speed, str):
        return float(facts[speed][client])
    if isinstance(speed, Distribution):
        return speed.draw(stream(seed, "speed", client))
    return speed[client] if isinstance(speed, tuple) else speed
