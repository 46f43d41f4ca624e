"""Schedules and algorithms as plain tables, the form in which they are saved, and back."""

from dataclasses import asdict, fields
from typing import Any

from fedadmm.core.errors import InputError
from fedadmm.core.schedules import SCHEDULES, Rate, Schedule


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


__all__ = ["Schedule", "rate_from", "to_plain"]
