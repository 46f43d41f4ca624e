"""Clients whose objective is f_i(w) = 1/2 (w - a_i)^T H_i (w - a_i): every answer is known in closed form.

With them random problems within the theorem's assumptions, and random draws of the clients that take part.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch

from fedadmm.core.algorithm import Solution, Vector
from fedadmm.core.participation import Devices, Ids, Participation
from fedadmm.core.round import Assignment, Buffers, ClientStats
from fedadmm.core.seeds import stream
from fedadmm.core.state_parts import Personal
from fedadmm.studies.theory.bounds import smallest_rho

NO_BUFFERS = Buffers(torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int64))
Tolerance = Callable[[int, int], float]  # of (client, round, from 1): epsilon_i
EXACT: Tolerance = lambda i, t: 0.0  # noqa: E731


class Quadratics:
    """A federation of quadratics, as a Task; `num_steps` gradient steps a visit, or a solve where it is None.

    A solve is exact, or ends where |grad L_i|^2 is the tolerance, in a random direction from the solution: the errors
    of equation 6, made.
    """

    def __init__(
        self,
        hessians: torch.Tensor,  # [client, d, d]
        targets: torch.Tensor,  # [client, d]: the a_i
        *,
        num_steps: int | None = None,
        learning_rate: float = 0.1,
        tolerance: Tolerance = EXACT,
        seed: int = 0,
    ) -> None:
        self.hessians, self.targets = hessians.double(), targets.double()
        self.num_steps, self.learning_rate = num_steps, learning_rate
        self.tolerance, self.seed = tolerance, seed
        self.curved = torch.einsum("ijk,ik->ij", self.hessians, self.targets)  # [client, d]: the H_i a_i
        self.inverse = cache(self._inverse)
        self.smoothness = float(torch.linalg.eigvalsh(self.hessians).abs().max())  # L

    def problem(self, assignment: Assignment, *, buffers: Buffers) -> "QuadraticProblem":
        """Return a client's problem in a round."""
        return QuadraticProblem(self, assignment, buffers)

    def minimiser(self, weights: Sequence[float] | None = None) -> Vector:
        """Return the minimiser of the (weighted) sum: (sum H_i)^-1 sum H_i a_i."""
        weight = torch.tensor(weights or [1] * len(self.targets)).double()
        return torch.linalg.solve(torch.einsum("i,ijk->jk", weight, self.hessians), weight @ self.curved)

    @cached_property
    def lowest_value(self) -> float:
        """f*, the least value of the sum."""
        return float(self.values(self.minimiser().expand_as(self.targets)).sum())

    def random_start(self, seed: int) -> Vector:
        """Return theta^0."""
        return torch.from_numpy(stream(seed, "theta").standard_normal(self.targets.shape[1]))

    def gradient(self, w: Vector) -> Vector:
        """Return the gradient of the mean objective."""
        return self.gradients(w.expand_as(self.targets)).mean(dim=0)

    def gradients(self, w: Vector) -> Vector:
        """Return each client's gradient at a point of its own, [..., client, d]."""
        return torch.einsum("ijk,...ik->...ij", self.hessians, w - self.targets)

    def values(self, w: Vector) -> torch.Tensor:
        """Return each client's objective at a point of its own, [..., client, d]."""
        return ((w - self.targets) * self.gradients(w)).sum(dim=-1) / 2

    def _inverse(self, client: int, rho: float) -> torch.Tensor:
        hessian = self.hessians[client]
        return torch.linalg.inv(hessian + rho * torch.eye(len(hessian), dtype=hessian.dtype))


class QuadraticProblem:
    """One client's quadratic in one round."""

    def __init__(self, task: Quadratics, assignment: Assignment, buffers: Buffers) -> None:
        self._task, self.client, self._buffers = task, assignment.client, buffers
        self._hessian, self._target = task.hessians[self.client], task.targets[self.client]
        self.round = assignment.round
        self.first_visit, self.last_round = assignment.first_visit, assignment.last_round or 0
        self.num_steps = task.num_steps or 1
        self.num_examples = 1
        self.learning_rate, self.clip = task.learning_rate, None
        self._steps = 0
        self.personal: Personal | None = None

    def gradient(self, w: Vector) -> Vector:
        """Return H (w - a)."""
        self._steps += 1
        return self._hessian @ (w - self._target)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Return H v."""
        self._steps += 1
        return self._hessian @ v

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        """Return (H + rho I)^-1 v."""
        self._steps += 1
        return self._task.inverse(self.client, rho) @ v

    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: float = 0.0, centre: Vector | None = None
    ) -> Solution:
        """Minimise f(w) + <dual, w> + rho/2 |w - centre|^2, exactly or by gradient steps from `start`."""
        linear = torch.zeros_like(start) if dual is None else dual
        if centre is not None:
            linear = linear - rho * centre
        if self._task.num_steps is None:
            self._steps += 1
            inverse = self._task.inverse(self.client, rho)
            return Solution(inverse @ (self._task.curved[self.client] - linear + self._error(len(start))), 1)
        w = start
        for _ in range(self._task.num_steps):
            w = w - self.learning_rate * (self.gradient(w) + linear + rho * w)
        return Solution(w, self._task.num_steps)

    def _error(self, dimension: int) -> Vector:
        """Return the gradient of the local problem that a solve leaves."""
        task, epsilon = self._task, self._task.tolerance(self.client, self.round)
        if epsilon == 0:
            return torch.zeros(dimension, dtype=torch.float64)
        drawn = torch.from_numpy(stream(task.seed, "error", self.round, self.client).standard_normal(dimension))
        return drawn * (epsilon**0.5 / drawn.norm())

    def stats(self) -> ClientStats:
        """Return what was done; the loss of a quadratic is of no interest here."""
        return ClientStats(self._steps, self._steps * self.num_examples, 0.0, self._buffers)


def heterogeneous(num_clients: int, dimension: int, *, seed: int = 0, **how: Any) -> Quadratics:
    """Return clients with curvatures from 0.1 (mu) to 1 (L) along axes of their own, and far apart minimisers."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_clients, dimension)
    axes, _ = torch.linalg.qr(torch.randn(*shape, dimension, dtype=torch.float64, generator=generator))
    curvatures = 0.1 + 0.9 * torch.rand(shape, dtype=torch.float64, generator=generator)
    curvatures[:, 0], curvatures[:, -1] = 0.1, 1.0
    hessians = axes @ torch.diag_embed(curvatures) @ axes.mT
    return Quadratics(hessians, 3 * torch.randn(shape, dtype=torch.float64, generator=generator), **how)


def random_quadratics(seed: int) -> tuple[Quadratics, float]:
    """Return 2 to 8 clients in 1 to 4 dimensions, and a rho that the theorem allows.

    Every other problem has clients that are not convex: only the sum is bounded below, as assumption 2 asks.
    """
    generator = stream(seed, "quadratics")
    num_clients, dimension = int(generator.integers(2, 9)), int(generator.integers(1, 5))
    shape = (num_clients, dimension)
    axes, _ = np.linalg.qr(generator.standard_normal((*shape, dimension)))
    largest = 10 ** generator.uniform(-1, 1)
    lowest = -0.9 * largest if seed % 2 else 0.0
    curvatures = generator.uniform(lowest, largest, size=shape)
    hessians = np.einsum("cij,cj,ckj->cik", axes, curvatures, axes)
    # Lift the least curved directions of the sum, so that it has a minimum.
    least = np.linalg.eigvalsh(hessians.sum(axis=0))[0]
    lift = max(0.0, 0.1 * largest - least / num_clients)
    hessians += lift * np.eye(dimension)
    targets = generator.standard_normal(shape) * 10 ** generator.uniform(-1, 1)
    task = Quadratics(torch.from_numpy(hessians), torch.from_numpy(targets))
    return task, smallest_rho(task.smoothness) * float(1 + 10 ** generator.uniform(-2, 0.5))


def drawn(rule: Participation, *, num_clients: int, rounds: int, seed: int = 0) -> Iterator[Ids]:
    """Yield who takes part in each round, as a run with this rule and this seed draws them."""
    devices = Devices(num_clients)
    for t in range(1, rounds + 1):
        yield rule.select(t, devices=devices, generator=stream(seed, "participation", t))


def coins(
    num_clients: int, *, rounds: int, probability: float, seed: int, draw: int = 0, after_everyone: bool = False
) -> list[list[int]]:
    """Return who takes part in each round if every client decides for itself.

    after_everyone: count the rounds from the one at which everyone has taken part.
    """
    generator = stream(seed, "participation", draw)
    seen = np.full(num_clients, not after_everyone)
    falls: list[list[int]] = []
    while rounds > 0:
        rounds -= bool(seen.all())
        fall = generator.random(num_clients) < probability
        seen |= fall
        falls.append(np.flatnonzero(fall).tolist())
    return falls
