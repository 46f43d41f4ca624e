"""Random problems within the theorem's assumptions, and random draws of the clients that take part."""

from collections.abc import Iterator

import numpy as np
import torch

from fedadmm.core.participation import Devices, Ids, Participation
from fedadmm.core.seeds import stream
from fedadmm.studies.theory.bounds import smallest_rho
from fedadmm.studies.theory.quadratics import Quadratics


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


def random_start(task: Quadratics, seed: int) -> torch.Tensor:
    """Return theta^0."""
    return torch.from_numpy(stream(seed, "theta").standard_normal(task.targets.shape[1]))


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


def lowest_value(task: Quadratics) -> float:
    """Return f*, the least value of the sum."""
    return float(task.values(task.minimiser().expand_as(task.targets)).sum())
