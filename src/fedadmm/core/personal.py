"""Parts of a model that each client keeps for itself: fields of its state, after those of the algorithm.

They are stored, dropped and confirmed with the rest of the state, and they never travel.
"""

import copyreg
from collections import namedtuple
from typing import Any, NamedTuple

from fedadmm.core.algorithm import Message, Vector


class Personal(NamedTuple):
    """The parts of one client."""

    personal: Vector  # parameters, then float buffers
    personal_integers: Vector  # the other buffers


class _StateType(type):
    """The type of a state with personal parts, which another process makes again."""

    inner: type[Any]  # of the algorithm's own fields


_made: dict[type[Any], _StateType] = {}


def with_personal(kind: type[Any]) -> _StateType:
    """Return the type of a client's state that has personal parts beside an algorithm's fields: always the same."""
    if kind not in _made:
        fields = namedtuple("Client", [*kind._fields, *Personal._fields])  # type: ignore[misc]
        _made[kind] = _StateType("Client", (fields,), {"__slots__": (), "inner": kind})
    return _made[kind]


copyreg.pickle(_StateType, lambda kind: (with_personal, (kind.inner,)))


def joined(state: Message, personal: Personal | None) -> Message:
    """Return a state with the parts, if there are any."""
    if personal is None:
        return state
    whole: Message = with_personal(type(state))(*state, *personal)
    return whole


def parted(state: Message) -> tuple[Message, Personal | None]:
    """Return the algorithm's own state, and the parts, None if there are none."""
    kind: Any = type(state)
    if not isinstance(kind, _StateType):
        return state, None
    size = len(Personal._fields)
    return kind.inner(*state[:-size]), Personal(*state[-size:])
