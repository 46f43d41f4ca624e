"""Messages in memory that processes share."""

from typing import Any

import torch

from fedadmm.core.algorithm import Algorithm, Message, Vector
from fedadmm.core.errors import InputError


class SharedMessage:
    """A message whose vectors are in shared memory; its scalars travel beside it."""

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
        """Copy the vectors of a message, and return its scalars."""
        scalars = []
        for field, vector in zip(message, self._vectors, strict=True):
            if vector is None:
                scalars.append(field)
            else:
                vector.copy_(field)
        return scalars

    def read(self, scalars: list[Any]) -> Any:
        """Return the message that was written; its vectors are the shared ones."""
        rest = iter(scalars)
        return self._kind(*(next(rest) if vector is None else vector for vector in self._vectors))


class Standstill:
    """A local problem that is solved where it starts."""

    client, round, num_steps, num_examples, learning_rate = 0, 1, 1, 1, 1.0

    def solve(self, *, start: Vector, **terms: Any) -> Vector:
        return start.clone()

    def gradient(self, w: Vector) -> Vector:
        return torch.zeros_like(w)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return torch.zeros_like(v)

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        return v / rho


def probe_upload(algorithm: Algorithm[Any, Any, Any], download: Any, initial: Vector) -> Message:
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
