"""Robust means: what the server makes of a round's uploads where some of them may be wrong.

Median and trimmed mean of each coordinate: Yin et al., ICML 2018. Krum: Blanchard et al., NeurIPS 2017; the score of an
upload is the sum of its squared distances to the n - f - 2 nearest others, and the least wins; with `select` above 1
the best are averaged (Multi-Krum). Geometric median: RFA, Pillutla et al., IEEE TSP 2022, by the smoothed Weiszfeld
iteration. Norm clipping: Sun et al., 2019; u is multiplied by min(1, M / |u|).

Each but norm clipping counts every client alike, takes the numbers of an upload as further coordinates, and keeps no
invariant: what it applies is not what the clients kept.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fedadmm.core.algorithm import Message
from fedadmm.core.mean import Collector, is_number, norm_of, rebuilt
from fedadmm.core.transport import scaled
from fedadmm.uploads.settings import Robust

SMOOTHING = 1e-6  # RFA's nu, relative to the spread of the uploads: nobody weighs more than 1 / nu
MOST_STEPS = 100  # of Weiszfeld's iteration
CLOSE = 1e-9  # relative step at which it has ended
ROUNDING = 1e-6  # relative: an upload that its client clipped may be as much too long


@dataclass(frozen=True)
class RobustWrap:
    """Puts a robust mean in the place of the plain one."""

    settings: Robust

    def __call__(self, plain: Collector, round: int) -> Collector:
        """Return the collector of a round."""
        if self.settings.name == "norm_clip":
            return ClippedMean(plain, self.settings.norm or 0.0)
        return RobustMean(plain, self.settings)


@dataclass(frozen=True)
class BufferWrap:
    """The same for float buffers, which are values and no changes: by coordinates, whatever the rule is."""

    settings: Robust

    def __call__(self, plain: Collector, round: int) -> Collector:
        """Return the collector of a round."""
        by_coordinate = self.settings.name in ("median", "trimmed_mean")
        return RobustMean(plain, self.settings if by_coordinate else Robust(name="median"))


@dataclass
class RobustMean:
    """Keeps the uploads of a round and makes one of them at its end."""

    plain: Collector
    settings: Robust
    kept: list[tuple[Message, float]] = field(default_factory=list)

    @property
    def weight(self) -> float:
        """The weight of all uploads, 0 if there are too few of them."""
        return sum(weight for _, weight in self.kept) if len(self.kept) >= self.settings.fewest else 0.0

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Keep a message, in memory of its own."""
        own = (value if is_number(value) else value.clone() for value in message)
        self.kept.append((rebuilt(message, own), weight))

    def mean(self) -> Message:
        """Return the robust mean; where nothing is trimmed, the plain one to the bit."""
        settings, num = self.settings, len(self.kept)
        messages = [message for message, _ in self.kept]
        if settings.name == "median":
            return _by_coordinate(messages, cut=(num - 1) // 2)
        if settings.trim is not None and int(settings.trim * num):
            return _by_coordinate(messages, cut=int(settings.trim * num))
        chosen = self.kept
        if settings.liars is not None:
            best = krum_order(_rows(messages), liars=settings.liars)[: settings.select or 1]
            chosen = [self.kept[place] for place in sorted(best)]
        elif settings.name == "geometric_median":
            shares = geometric_median_shares(_rows(messages), torch.tensor([weight for _, weight in self.kept]))
            chosen = list(zip(messages, shares.tolist(), strict=True))
        for message, weight in chosen:
            self.plain.add(message, weight=weight)
        return self.plain.mean()


@dataclass
class ClippedMean:
    """The mean of uploads, each shortened to a length: a number, or a multiple of their median length."""

    plain: Collector
    norm: float | str
    kept: list[tuple[Message, float, tuple[int, ...]]] = field(default_factory=list)

    @property
    def weight(self) -> float:
        """The weight of all uploads."""
        return self.plain.weight + sum(weight for _, weight, _ in self.kept)

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Take a message at once, or keep it until the median length is known."""
        if isinstance(self.norm, str):
            own = (value if is_number(value) else value.clone() for value in message)
            self.kept.append((rebuilt(message, own), weight, clients))
        else:
            self.plain.add(_clipped(message, self.norm), weight=weight, clients=clients)

    def mean(self) -> Message:
        """Return the mean."""
        if isinstance(self.norm, str):
            middle = statistics.median(norm_of(message) for message, _, _ in self.kept)
            for message, weight, clients in self.kept:
                longest = float(self.norm.removesuffix("x")) * middle
                self.plain.add(_clipped(message, longest), weight=weight, clients=clients)
            self.kept.clear()
        return self.plain.mean()


def _clipped(message: Message, longest: float) -> Message:
    length = norm_of(message)
    return scaled(message, longest / length) if length > longest * (1 + ROUNDING) else message


def _rows(messages: Sequence[Message]) -> torch.Tensor:
    """Return the vectors of each message as a row."""
    return torch.stack([torch.cat([v.reshape(-1) for v in message if not is_number(v)]) for message in messages])


def _by_coordinate(messages: Sequence[Message], *, cut: int) -> Message:
    """Return the mean of each coordinate without its `cut` least and its `cut` largest values."""

    def middle(column: Sequence[Any]) -> Any:
        numbers = is_number(column[0])
        values = torch.tensor(column, dtype=torch.float64) if numbers else torch.stack(list(column))
        kept = values.sort(dim=0).values[cut : len(column) - cut].double().mean(dim=0)
        return float(kept) if numbers else kept.to(column[0].dtype)

    return rebuilt(messages[0], (middle(column) for column in zip(*messages, strict=True)))


def krum_order(rows: torch.Tensor, *, liars: int) -> list[int]:
    """Return the places of the rows [n, d] by Krum's score, the best first; of equal ones the first."""
    nearest = len(rows) - liars - 2
    scores = []
    for own in rows:
        distances = (rows - own).double().pow(2).sum(dim=1).sort().values  # the first is its own, 0
        scores.append(float(distances[1 : 1 + nearest].sum()))
    return sorted(range(len(rows)), key=lambda place: (scores[place], place))


def geometric_median_shares(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the shares [n] with which the mean of the rows [n, d] is their weighted geometric median."""
    rows, shares = rows.double(), weights.double() / weights.sum()
    point = shares @ rows
    smallest = SMOOTHING * float((rows - point).norm(dim=1).max())
    if smallest < torch.finfo(torch.float64).tiny:  # a single upload, or all alike
        return shares
    for _ in range(MOST_STEPS):
        betas = weights / (rows - point).norm(dim=1).clamp(min=smallest)
        shares = betas / betas.sum()
        point, before = shares @ rows, point
        if float((point - before).norm()) <= CLOSE * max(float(point.norm()), smallest):
            break
    return shares
