"""Attacks of simulated clients on their uploads; what they train on is flipped where the data is assembled.

The lie is that of Baruch et al., NeurIPS 2019 ("A Little Is Enough", algorithm 3): of a round's n uploads m are the
attackers'. They send mu - z sigma, of the mean and the standard deviation of each coordinate of their own uploads. They
need s = floor(n / 2 + 1) - m supporters for a majority, and so take the largest z with Phi(z) < (n - m - s) / (n - m).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.mean import Collector, is_number, rebuilt
from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.core.transport import Sent, scaled
from fedadmm.uploads.settings import Attack

FACTORS = {"sign_flip": 1.0, "scaling": 10.0, "noise": 10.0}  # where the settings have none


def attackers(settings: Attack, *, num_clients: int, seed: int) -> frozenset[int]:
    """Return the clients that attack, the same in every round."""
    count = round(settings.share * num_clients)
    chosen: Iterable[int] = stream(seed, "attackers").choice(num_clients, size=count, replace=False)
    return frozenset(int(client) for client in chosen)


@dataclass(frozen=True)
class AttackStep:
    """The step of a client that attacks: its upload is wrong, and its state is that of an honest one."""

    settings: Attack
    clients: frozenset[int]
    seed: int

    def __call__(self, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
        """Return what the client sends."""
        if assignment.client not in self.clients:
            return sent
        name = self.settings.name
        factor = self.settings.factor or FACTORS[name]
        if name != "noise":
            return sent._replace(upload=scaled(sent.upload, -factor if name == "sign_flip" else factor))
        generator = stream(self.seed, "attack", assignment.round, assignment.client)
        noisy = (value if is_number(value) else _noisy(value, factor, generator) for value in sent.upload)
        return sent._replace(upload=rebuilt(sent.upload, noisy))


def _noisy(vector: Vector, factor: float, generator: np.random.Generator) -> Vector:
    noise = torch.from_numpy(generator.standard_normal(vector.shape)).to(vector)
    return vector + noise * (factor * vector.norm() / max(1, vector.numel()) ** 0.5)


@dataclass(frozen=True)
class LieWrap:
    """Lets the attackers of a round agree on what they send."""

    settings: Attack
    clients: frozenset[int]

    def __call__(self, plain: Collector, round: int) -> Collector:
        """Return the collector of a round."""
        return LyingCollector(plain, self.clients, self.settings.factor)


@dataclass
class LyingCollector:
    """Holds the attackers' uploads until all are there, and hands the lie on in the place of each."""

    inner: Collector
    clients: frozenset[int]
    factor: float | None
    num_honest: int = 0
    held: list[tuple[Message, float, tuple[int, ...]]] = field(default_factory=list)

    @property
    def weight(self) -> float:
        """That of the collector inside, once it has the lies."""
        self._tell()
        return self.inner.weight

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Hand an honest message on, and hold an attacker's."""
        if self.clients.isdisjoint(clients):
            self.num_honest += 1
            self.inner.add(message, weight=weight, clients=clients)
        else:
            own = (value if is_number(value) else value.clone() for value in message)
            self.held.append((rebuilt(message, own), weight, clients))

    def mean(self) -> Message:
        """Return the mean of the collector inside."""
        self._tell()
        return self.inner.mean()

    def _tell(self) -> None:
        if not self.held:
            return
        num = len(self.held)
        z = self.factor if self.factor is not None else largest_z(self.num_honest + num, num)
        lie = lie_of([message for message, _, _ in self.held], z=z)
        for message, weight, clients in self.held:
            # Numbers stay those of the attacker: they are few, and a server may read them one by one.
            told = (own if is_number(own) else false for own, false in zip(message, lie, strict=True))
            self.inner.add(rebuilt(message, told), weight=weight, clients=clients)
        self.held.clear()


def largest_z(num_uploads: int, num_attackers: int) -> float:
    """Return by how many deviations a lie may be shifted and still have a majority at its side; 0 at least."""
    num_honest = num_uploads - num_attackers
    supporters = num_uploads // 2 + 1 - num_attackers
    share = (num_honest - supporters) / num_honest if num_honest else 1.0
    return NormalDist().inv_cdf(share) if 0.5 < share < 1 else 0.0 if share <= 0.5 else 3.0


def lie_of(messages: Sequence[Message], *, z: float) -> Message:
    """Return mu - z sigma of each coordinate."""

    def shifted(column: Sequence[Any]) -> Any:
        if is_number(column[0]):
            return column[0]
        rows = torch.stack(list(column)).double()
        return (rows.mean(dim=0) - z * rows.std(dim=0, correction=0)).to(column[0].dtype)

    return rebuilt(messages[0], (shifted(column) for column in zip(*messages, strict=True)))
