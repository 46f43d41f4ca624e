"""Whether an algorithm treats the clients of a stack apart: two clients on quadratics, together and each alone."""

from typing import Any

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Solution, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.optional import SecondOrder, trait
from fedadmm.engine.stacked import stacked, unstacked

THETA = torch.linspace(-1.0, 1.0, 5)
TARGETS = torch.tensor([[0.5, -1.0, 2.0, 0.0, 1.0], [-2.0, 0.3, 1.0, 4.0, -0.7]])
NUM_STEPS = torch.tensor([[2.0], [3.0]])


class _Quadratic:
    """f(w) = |w - target|^2 / 2 of one client [d] or of a stack [K, d]; it is solved by one long step."""

    round, learning_rate = 1, 0.3
    first_visit, last_round = True, 0

    def __init__(self, target: Vector, num_steps: Any) -> None:
        self._target, self.num_steps, self.num_examples = target, num_steps, num_steps

    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: Any = 0.0, centre: Vector | None = None
    ) -> Solution:
        slope = self.gradient(start) + (0.0 if dual is None else dual)
        w = start - 0.3 * (slope if centre is None else slope + rho * (start - centre))
        return Solution(w, self.num_steps)

    def gradient(self, w: Vector) -> Vector:
        return w - self._target


def check_elementwise(algorithm: AnyAlgorithm) -> None:
    """Refuse an algorithm that needs Hessians, or that gives a client another answer in a stack than alone."""
    if trait(algorithm, SecondOrder):
        raise _mixing(algorithm, "it takes Newton steps, which are made for one client at a time")
    alone = [_visits(algorithm, _Quadratic(TARGETS[k], int(NUM_STEPS[k]))) for k in range(2)]
    try:
        together = _stacked_visits(algorithm, _Quadratic(TARGETS, NUM_STEPS), form=alone[0])
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise _mixing(algorithm, f"it fails: {str(error).splitlines()[0]}") from error
    for right, ours in zip(alone, together, strict=True):
        for message, other in zip(right, ours, strict=True):
            for name, a, b in zip(message._fields, message, other, strict=True):
                if a is not b and not torch.allclose(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-4):
                    raise _mixing(algorithm, f"`{name}` is another in a stack than alone")


def _visits(algorithm: AnyAlgorithm, problem: Any) -> tuple[Any, Any]:
    """Return the upload and the state after two visits: the second meets a state of the first."""
    server = algorithm.download(algorithm.init_server(THETA))
    _, client = algorithm.client_update(server, algorithm.init_client(THETA), problem)
    upload, client = algorithm.client_update(server, client, problem)
    return upload, client


def _stacked_visits(algorithm: AnyAlgorithm, problem: Any, *, form: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    server = algorithm.download(algorithm.init_server(THETA))
    states: list[Any] = [algorithm.init_client(THETA)] * 2
    for _ in range(2):
        upload, after = algorithm.client_update(server, stacked(states, like=THETA), problem)
        states = unstacked(after, 2, form=form[1])
    return list(zip(unstacked(upload, 2, form=form[0]), states, strict=True))


def _mixing(algorithm: AnyAlgorithm, reason: str) -> InputError:
    return InputError(
        f"{type(algorithm).__name__} cannot run on a stack of clients ({reason}); write client_update elementwise, for "
        'vectors [K, d] and scalars [K, 1], or use engine = "workers"'
    )
