"""Messages are NamedTuples of vectors and scalars: their size, their finiteness, their mean in a fixed order."""

import math
from collections.abc import Iterator
from typing import Any, TypeVar

from fedadmm.core.algorithm import Message, Vector

M = TypeVar("M", bound=Message)


def num_bytes(message: Message) -> int:
    """Return the bytes that the fields of a message take on the wire; a scalar takes eight."""
    return sum(8 if _is_number(field) else field.nbytes for field in message)


def is_finite(message: Message) -> bool:
    """Return whether no field of the message holds a NaN or an infinity."""
    return all(math.isfinite(field) if _is_number(field) else _is_finite(field) for field in message)


def _is_number(field: Any) -> bool:
    return isinstance(field, int | float)


def _is_finite(vector: Vector) -> bool:
    # A finite sum proves finite terms in one pass; large terms may overflow it, so then look at each.
    return math.isfinite(vector.sum()) or bool(vector.isfinite().all())


class MeanInOrder:
    """A weighted mean of messages, summed over a binary tree whose shape depends on their number alone.

    Partial sums of equal height are merged at once, so n messages never hold more than log2(n + 1) vectors,
    and the same messages in the same order give the same bits wherever they were computed.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._partial: list[tuple[int, Message]] = []  # (height, sum), heights falling

    def add(self, message: Message, *, weight: float) -> None:
        """Add a message as the next leaf; it is not kept, so its memory may be used again."""
        self.weight += weight
        height = 0
        while self._partial and self._partial[-1][0] == height:
            message = _added(self._partial.pop()[1], message, alpha=weight if height == 0 else 1.0)
            height += 1
        self._partial.append((height, message if height else _scaled(message, weight)))

    def mean(self) -> Message:
        """Return the mean of what was added."""
        total = self._partial[-1][1]
        for _, left in reversed(self._partial[:-1]):
            total = _rebuild(left, (a + b for a, b in zip(left, total, strict=True)))
        return _rebuild(total, (field / self.weight for field in total))


def _scaled(message: M, weight: float) -> M:
    """Return weight times a message, in memory of its own."""
    return _rebuild(message, (field * weight for field in message))


def _added(left: M, right: M, *, alpha: float) -> M:
    """Return left + alpha times right; left is our own, so its vectors are added to in place."""
    return _rebuild(
        left, (a + alpha * b if _is_number(a) else a.add_(b, alpha=alpha) for a, b in zip(left, right, strict=True))
    )


def _rebuild(like: M, fields: Iterator[Any]) -> M:
    if type(like) is tuple:
        return tuple(fields)  # type: ignore[return-value]
    return type(like)(*fields)
