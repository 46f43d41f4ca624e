"""Messages in memory that processes share."""

from collections.abc import Sequence
from typing import Any

import torch

from fedadmm.core.algorithm import Message


class SharedMessage:
    """A message whose vectors are in shared memory; the rest of it travels beside them."""

    def __init__(self, kind: type[Any], vectors: list[torch.Tensor | None]) -> None:
        self._kind, self._vectors = kind, vectors

    @classmethod
    def like(cls, message: Message) -> "SharedMessage":
        """Make room for messages of this form."""
        return cls(
            type(message),
            [torch.empty_like(f).share_memory_() if isinstance(f, torch.Tensor) else None for f in message],
        )

    def write(self, message: Message) -> list[Any]:
        """Copy the vectors that there is room for, and return the rest, with `...` in the places of those."""
        rest: list[Any] = []
        for field, vector in zip(message, self._vectors, strict=True):
            if vector is not None and _fits(field, vector):
                vector.copy_(field)
                rest.append(...)
            else:
                rest.append(field)
        return rest

    def read(self, rest: Sequence[Any]) -> Any:
        """Return the message that was written; its vectors are the shared ones."""
        fields = zip(rest, self._vectors, strict=True)
        return self._kind(*(vector if field is ... else field for field, vector in fields))

    def copy(self, rest: Sequence[Any]) -> Any:
        """Return the message that was written, in memory of its own."""
        return self._kind(*(f.clone() if isinstance(f, torch.Tensor) else f for f in self.read(rest)))


def _fits(field: Any, vector: torch.Tensor) -> bool:
    return isinstance(field, torch.Tensor) and (field.dtype, field.shape) == (vector.dtype, vector.shape)
