"""Client-level differential privacy: clients clip what they send, and a round releases the noised sum of it.

clip     the norm of an upload at most, all of its vectors together; a client that sends s times its update keeps s
         times the change of its state, so what the server has added up is what its clients keep, and noise
noise    the standard deviation of the noise on the sum, over clip
cohort   the clients that are expected in a round, share x all of them: the mean is the noised sum over this number,
         which no client's presence changes, however many came
seen     what a method is told of the clients seen so far is likewise the number that is expected

DP-FedAvg (McMahan et al., ICLR 2018), with the fixed denominator of its estimator f_f. Adaptive clipping is that of
Andrew et al. (NeurIPS 2021): clients also send whether their upload was within clip, and clip follows a quantile of the
norms. The noised share of such clients takes a part of the budget, so both cost what the noise alone would.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from fedadmm.core.algorithm import Message
from fedadmm.core.errors import InputError
from fedadmm.core.mean import Collector, is_number, rebuilt
from fedadmm.core.participation import Participation, Poisson, Uniform
from fedadmm.core.round import ClientResult, RoundSummary
from fedadmm.core.seeds import stream
from fedadmm.uploads.accountant import Accountant, import_dp_accounting, noise_for, split_noise
from fedadmm.uploads.secret_draws import secret_normals
from fedadmm.uploads.settings import AdaptiveClip, Privacy

FARTHEST = 1.0  # from 0 or from 1 that a noised share of clients moves the clip: one beyond is nothing but noise


@dataclass(frozen=True)
class PrivateSums:
    """The server's half: what it adds to sums, what it tells of a round, and what that has cost.

    seed: of the noise's stream; None: noise comes from the operating system, and is not the same twice.
    """

    accountant: Accountant
    clip: float  # of this round
    num_clients: int
    like: Message  # an upload, for its form alone
    seed: int | None
    budget: float | None = None  # the epsilon that must not be exceeded
    adaptive: AdaptiveClip | None = None

    @property
    def asked_clip(self) -> float | None:
        """The clip of this round, where it is adaptive."""
        return None if self.adaptive is None else self.clip

    @property
    def cohort(self) -> float:
        """The number of clients that is expected in a round."""
        return self.accountant.share * self.num_clients

    @property
    def count_noise(self) -> float:
        """The standard deviation of the noise on the count of clients within clip, where clipping is adaptive."""
        given = None if self.adaptive is None else self.adaptive.count_noise
        return max(self.cohort / 20, self.accountant.noise) if given is None else given

    @property
    def sum_noise(self) -> float:
        """The standard deviation of the noise on the sum, over clip."""
        noise = self.accountant.noise
        return noise if self.adaptive is None else split_noise(noise, count_noise=self.count_noise)

    def check(self) -> None:
        """Refuse a budget that not even one round keeps, and a delta that protects nobody."""
        if self.accountant.delta >= 1 / self.num_clients:
            raise InputError(
                f"privacy.delta={self.accountant.delta:g} is not below 1 / {self.num_clients} clients: it would allow "
                f"to publish one of them; use less than {1 / self.num_clients:g}"
            )
        _ = self.sum_noise
        if self.accountant.noise:
            import_dp_accounting()  # and not when the first round has been played
        if self.budget is not None and self.accountant.epsilon(1) > self.budget:
            raise InputError(
                f"privacy.epsilon={self.budget:g} is spent before the first round, which costs "
                f"{self.accountant.epsilon(1):.4g}; use more noise"
            )

    def collector(self, inside: Collector, round: int) -> Collector:
        """Return what releases the noised sum of a round over the number of clients that is expected."""
        return NoisedSum(self, inside, round)

    def seen(self, round: int) -> float:
        """Return how many clients are expected to have taken part after this many rounds."""
        return self.num_clients * (1.0 - (1.0 - self.accountant.share) ** round)

    def released(self, round: int, summary: RoundSummary, applied: Sequence[ClientResult]) -> RoundSummary:
        """Return what may be told of a round, with what it has cost: no number that the noise does not cover."""
        numbers: dict[str, float] = {"epsilon_spent": self.accountant.epsilon(round)}
        if self.adaptive is not None:
            # Bits less one half: a client more or less changes their sum by one half.
            count = sum(0.5 if result.stats.within_clip else -0.5 for result in applied)
            count += self.count_noise * float(self._normals("privacy count", round, 1)[0])
            numbers |= {"clip": self.clip, "within_clip": count / self.cohort + 0.5}
        is_spent = self.budget is not None and self.accountant.epsilon(round + 1) > self.budget
        return summary._replace(
            client_loss=None, achieved={}, upload_norm=None, released=numbers, budget_spent=is_spent
        )

    def after(self, released: Mapping[str, float | None]) -> "PrivateSums":
        """Return the mechanism of the next round, given the numbers that the last one released."""
        clip, within = released.get("clip"), released.get("within_clip")
        if self.adaptive is None or clip is None or within is None:
            return self
        within = min(max(within, -FARTHEST), 1.0 + FARTHEST)
        return replace(self, clip=clip * math.exp(-self.adaptive.learning_rate * (within - self.adaptive.quantile)))

    def _normals(self, purpose: str, round: int, size: int) -> npt.NDArray[np.float64]:
        return secret_normals(size) if self.seed is None else stream(self.seed, purpose, round).standard_normal(size)

    def noise(self, round: int) -> Message:
        """Return the noise on the sum of a round, as a message."""
        sizes = [0 if is_number(field) else len(field) for field in self.like]
        drawn = torch.from_numpy(self._normals("privacy noise", round, sum(sizes)) * (self.sum_noise * self.clip))
        parts = zip(self.like, drawn.split(sizes), strict=True)
        return rebuilt(self.like, (0.0 if is_number(field) else part.to(field.dtype) for field, part in parts))


class NoisedSum:
    """A collector whose mean is the noised sum over the expected number of clients: also of nobody."""

    def __init__(self, sums: PrivateSums, inside: Collector, round: int) -> None:
        self._sums, self._inside, self._round = sums, inside, round

    @property
    def weight(self) -> float:
        """The number of clients that is expected; 0 if a masked sum cannot be had: then nothing is released."""
        return 0.0 if getattr(self._inside, "is_void", False) else self._sums.cohort

    def add(self, message: Message, *, weight: float, clients: tuple[int, ...] = ()) -> None:
        """Take a message; all clients weigh the same."""
        self._inside.add(message, weight=weight, clients=clients)

    def mean(self) -> Message:
        """Return the noised sum over the number of clients that is expected; numbers are not released."""
        mean, share = self._sums.like, self._inside.weight / self.weight
        if share:
            mean = self._inside.mean()
        fields = [0.0 if is_number(field) else field * share for field in mean]
        if self._sums.sum_noise:
            noise = self._sums.noise(self._round)
            fields = [a if is_number(a) else a + b / self.weight for a, b in zip(fields, noise, strict=True)]
        return rebuilt(self._sums.like, iter(fields))


def private_sums(
    settings: Privacy, *, participation: Participation, num_clients: int, like: Message, seed: int | None
) -> PrivateSums:
    """Return the server's half of the mechanism that a table describes."""
    share = share_of(participation, num_clients)
    noise, delta, sampling = settings.noise, settings.delta, settings.sampling
    if noise is None:
        assert settings.epsilon is not None
        if settings.rounds is None:
            raise InputError("privacy.rounds is missing, over which epsilon is spread; set it, or privacy.noise")
        noise = noise_for(settings.epsilon, rounds=settings.rounds, share=share, delta=delta, sampling=sampling)
    accountant = Accountant(noise, share, delta, sampling)
    sums = PrivateSums(accountant, settings.clip, num_clients, like, seed, settings.epsilon, settings.adaptive)
    sums.check()
    return sums


def share_of(participation: Participation, num_clients: int) -> float:
    """Return the share of the clients that a round of a private run has."""
    if isinstance(participation, Poisson):
        return participation.fraction
    assert isinstance(participation, Uniform)
    return participation.size(num_clients) / num_clients


def sampled(settings: Privacy | None, participation: Participation) -> Participation:
    """Return the rule by which a private run draws its clients."""
    if settings is None:
        return participation
    if not isinstance(participation, Uniform):
        raise InputError(
            "privacy is accounted for clients that are all drawn with the same probability; give participation as one "
            "share, such as 0.1"
        )
    return Poisson(participation.fraction) if settings.sampling == "poisson" else participation
