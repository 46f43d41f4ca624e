"""Messages in memory that processes share."""

from collections.abc import Sequence
from typing import Any

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Message, Solution, Vector
from fedadmm.core.errors import InputError


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


class Standstill:
    """A local problem that is solved where it starts."""

    client, round, num_steps, num_examples, learning_rate = 0, 1, 1, 1, 1.0
    first_visit, last_round = True, 0

    def solve(self, *, start: Vector, **terms: Any) -> Solution:
        return Solution(start.clone(), 1)

    def gradient(self, w: Vector) -> Vector:
        return torch.zeros_like(w)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return torch.zeros_like(v)

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        return v / rho


def probe_upload(algorithm: AnyAlgorithm, download: Any, initial: Vector) -> Message:
    """Return an upload of an algorithm, for its form alone."""
    name = type(algorithm).__name__
    answer: Any = algorithm.client_update(download, algorithm.init_client(initial), Standstill())
    if type(answer) is not tuple or len(answer) != 2:
        raise InputError(f"{name}.client_update returns {type(answer).__name__}; return (upload, client)")
    for part in answer:
        if not isinstance(part, tuple):
            raise InputError(
                f"{name}.client_update returns {type(part).__name__} where a message belongs; return NamedTuples"
            )
    upload: Message = answer[0]
    return upload
