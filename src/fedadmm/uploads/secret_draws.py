"""Random draws from the operating system, for a federation whose nodes know the run's seed."""

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedadmm.core.participation import Devices, Ids, Participation


def secret_normals(size: int) -> npt.NDArray[np.float64]:
    """Return standard normal numbers made of the operating system's bits, by the method of Box and Muller."""
    half = -(-size // 2)
    whole = np.frombuffer(os.urandom(16 * half), dtype=np.uint64).reshape(2, half) >> np.uint64(11)  # 53 bits each
    radius = np.sqrt(-2 * np.log((whole[0] + 1.0) * 2.0**-53))
    angle = 2 * np.pi * whole[1] * 2.0**-53
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


@dataclass(frozen=True)
class DrawnSecretly:
    """A rule that draws with a key from the operating system, and not with the seed that every node is told."""

    rule: Participation

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Ids:
        """Return this round's clients."""
        return self.rule.select(round, devices=devices, generator=np.random.default_rng())

    def check(self, num_clients: int) -> None:
        """Refuse what the rule refuses."""
        self.rule.check(num_clients)
