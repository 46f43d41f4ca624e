"""A message as numbers: its size, its norm, whether it is finite, and the mean of several in a fixed order."""

import math
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, cast

from fedadmm.core.algorithm import Message, Vector

M = TypeVar("M", bound=Message)
ABSURD = 1e12  # no useful number is as large: the squared length of an upload that is refused by its length


def num_bytes(message: Message) -> int:
    """Return the bytes that the fields of a message take on the wire; a scalar takes eight."""
    return sum(8 if is_number(field) else field.nbytes for field in message)


def is_finite(message: Message) -> bool:
    """Return whether no field of the message holds a NaN or an infinity."""
    return all(math.isfinite(field) if is_number(field) else _is_finite(field) for field in message)


def norm_of(message: Message) -> float:
    """Return the norm of the vectors of a message together; those of whole numbers have none.

    A number counts where it is absurd: then the message is as long as that.
    """
    vectors = (float(f.norm()) for f in message if is_float(f))
    return math.hypot(*vectors, *(f for f in message if is_number(f) and abs(f) > ABSURD))


def is_float(field: Any) -> bool:
    """Return whether a field is a vector of floats, and not of whole numbers."""
    return not is_number(field) and bool(field.is_floating_point())


def is_number(field: Any) -> bool:
    """Return whether a field of a message is a number, not a vector."""
    return isinstance(field, int | float)


def _is_finite(vector: Vector) -> bool:
    # A finite sum proves finite terms in one pass; large terms may overflow it, so then look at each.
    return math.isfinite(vector.sum()) or bool(vector.isfinite().all())


class Collector(Protocol):
    """What takes the messages of a round, in rising order of their clients, and makes one of them: a mean of a kind."""

    @property
    def weight(self) -> float:
        """The weight behind the mean, which the algorithm is told; 0 if there is none."""

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Take the message of some clients (one, or several whose mean it is); its memory may be used again."""

    def mean(self) -> Message:
        """Return the mean; it is asked for once, after the last message."""


class MeanInOrder:
    """A weighted mean of messages, summed over a binary tree whose shape depends on their number alone.

    Partial sums of equal height are merged at once, so n messages never hold more than log2(n + 1) vectors,
    and the same messages in the same order give the same bits wherever they were computed.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._partial: list[tuple[int, Message]] = []  # (height, sum), heights falling

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Add a message as the next leaf; it is not kept, so its memory may be used again."""
        self.weight += weight
        height = 0
        while self._partial and self._partial[-1][0] == height:
            message = _added(self._partial.pop()[1], message, alpha=weight if height == 0 else 1.0)
            height += 1
        if height == 0:
            message = rebuilt(message, (field * weight for field in message))  # in memory of its own
        self._partial.append((height, message))

    def mean(self) -> Message:
        """Return the mean of what was added, made in the memory of the partial sums."""
        total = self._partial.pop()[1]
        while self._partial:
            total = _added(self._partial.pop()[1], total, alpha=1.0)
        return rebuilt(total, (f / self.weight if is_number(f) else f.div_(self.weight) for f in total))


def _added(left: M, right: M, *, alpha: float) -> M:
    """Return left + alpha times right; left is our own, so its vectors are added to in place."""
    return rebuilt(
        left, (a + alpha * b if is_number(a) else a.add_(b, alpha=alpha) for a, b in zip(left, right, strict=True))
    )


def rebuilt(like: M, fields: Iterator[Any]) -> M:
    """Return a message of the same form with these fields."""
    return cast(M, tuple(fields)) if type(like) is tuple else type(like)(*fields)
