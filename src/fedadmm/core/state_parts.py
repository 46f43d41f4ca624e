"""Fields that a client's state has beside those of its algorithm: parts, each a NamedTuple of its own.

They are stored, dropped and confirmed with the rest of the state, and they never travel.
"""

import copyreg
from collections import namedtuple
from typing import Any, NamedTuple, TypeVar

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.mean import rebuilt

P = TypeVar("P", bound=Message)


class HeldBack(NamedTuple):
    """What has been left out of a client's uploads so far, to be sent with the next ones."""

    held_back: Vector  # of all vectors of an upload, one after the other


class Personal(NamedTuple):
    """The parts of a model that a client keeps for itself."""

    personal: Vector  # parameters, then float buffers
    personal_integers: Vector  # the other buffers


class StateType(type):
    """The type of a state with a part, which another process makes again."""

    inner: type[Any]  # of the other fields
    part: type[Any]


_made: dict[tuple[type[Any], type[Any]], StateType] = {}


def with_part(kind: type[Any], part: type[Any]) -> StateType:
    """Return the type of a client's state that has a part beside the fields of `kind`: always the same."""
    if (kind, part) not in _made:
        fields = namedtuple("Client", [*kind._fields, *part._fields])  # type: ignore[misc]
        _made[kind, part] = StateType("Client", (fields,), {"__slots__": (), "inner": kind, "part": part})
    return _made[kind, part]


copyreg.pickle(StateType, lambda kind: (with_part, (kind.inner, kind.part)))


def with_parts(state: Message, *parts: Message | None) -> Message:
    """Return a state with these parts, of which None is no part."""
    for part in parts:
        if part is not None:
            state = with_part(type(state), type(part))(*state, *part)
    return state


def without_part(state: Message, part: type[P]) -> tuple[Message, P | None]:
    """Return a state without a part, and the part, None if it has none."""
    kind: Any = type(state)
    if not isinstance(kind, StateType):
        return state, None
    size = len(kind.part._fields)
    inner, own = kind.inner(*state[:-size]), kind.part(*state[-size:])
    if kind.part is part:
        return inner, own
    rest, found = without_part(inner, part)
    return with_parts(rest, own), found


def is_vector(field: Any) -> bool:
    """Return whether a field of an upload is a vector, some of which may be held back."""
    return getattr(field, "ndim", 0) == 1


def vectors_of(upload: Message) -> Vector:
    """Return the vectors of an upload, one after the other: the form of what is held back of it."""
    import torch  # states can be described without it

    vectors = [field for field in upload if is_vector(field)]
    return torch.cat(vectors) if vectors else torch.empty(0)


def with_vectors(upload: Message, flat: Vector) -> Message:
    """Return an upload with other vectors, which are given one after the other."""
    parts = iter(flat.split([len(field) for field in upload if is_vector(field)]))
    return rebuilt(upload, (next(parts) if is_vector(field) else field for field in upload))


def own_fields(state: Message) -> Message:
    """Return the algorithm's own state, without any part."""
    kind: Any = type(state)
    return own_fields(kind.inner(*state[: -len(kind.part._fields)])) if isinstance(kind, StateType) else state
