"""What a run records of the analysis: the augmented Lagrangian (equation 3), V^t (equation 7) and ADMM's residuals."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from fedadmm.config.tables import CertificateSettings
from fedadmm.core.algorithm import Vector
from fedadmm.core.engine import Store
from fedadmm.core.round import ServerCheckpoint
from fedadmm.core.seeds import stream
from fedadmm.runs.assembly import Federation
from fedadmm.runs.records import CERTIFICATE, Record

logger = logging.getLogger(__name__)


class Share(NamedTuple):
    """What each client adds to the Lagrangian and to V^t."""

    lagrangian: torch.Tensor  # [..., client]: f(w) + <y, w - theta> + rho/2 |w - theta|^2
    theta: Vector  # [..., client, d]: its part of grad_theta, -y - rho (w - theta)
    w: torch.Tensor  # [..., client]: |grad_w|^2
    consensus: torch.Tensor  # [..., client]: |w - theta|^2
    error: torch.Tensor  # [..., client]: |grad f(w) + y|^2, the epsilon that its last solve reached


class Certificate(NamedTuple):
    """Where a run stands: the Lagrangian, and V^t by its terms."""

    lagrangian: torch.Tensor
    theta: torch.Tensor  # |grad_theta L|^2
    w: torch.Tensor  # the sum of |grad_{w_i} L_i|^2
    consensus: torch.Tensor  # the sum of |w_i - theta|^2
    largest_error: torch.Tensor  # over clients, of the epsilon that the last solve reached

    @property
    def gap(self) -> torch.Tensor:
        """V^t."""
        return self.theta + self.w + self.consensus


def share(
    *,
    w: Vector,  # [..., client, d], as are y and gradient
    y: Vector,
    theta: Vector,  # [..., d]
    rho: float,
    value: torch.Tensor,  # [..., client]: f(w)
    gradient: Vector,
) -> Share:
    """Return the clients' shares, in double precision."""
    y, gradient = y.double(), gradient.double()
    apart = w.double() - theta.double().unsqueeze(-2)
    pull = y + rho * apart
    squared = apart.square().sum(dim=-1)
    lagrangian = value.double() + (y * apart).sum(dim=-1) + rho / 2 * squared
    of_w, error = ((gradient + dual).square().sum(dim=-1) for dual in (pull, y))
    return Share(lagrangian, -pull, of_w, squared, error)


def certificate_of(shares: Iterable[tuple[float, Share]]) -> Certificate:
    """Return the sums over clients, which may come in parts, each part with a weight: 1 for the paper's sums.

    Other weights are those of a weighted objective, or m / k where k of m clients were drawn: the sums are then
    estimates without bias, but for |grad_theta|^2, which comes out too large.
    """
    parts = []
    for weight, part in shares:
        sums = (part.lagrangian.sum(dim=-1), part.theta.sum(dim=-2), part.w.sum(dim=-1), part.consensus.sum(dim=-1))
        parts.append((*(weight * sum for sum in sums), part.error.amax(dim=-1)))
    lagrangian, theta, w, consensus, errors = (torch.stack(column) for column in zip(*parts, strict=True))
    of_theta = theta.sum(dim=0).square().sum(dim=-1)
    return Certificate(lagrangian.sum(dim=0), of_theta, w.sum(dim=0), consensus.sum(dim=0), errors.amax(dim=0))


class Certifier:
    """Looks at a run between two rounds; it changes nothing of it."""

    def __init__(self, settings: CertificateSettings, federation: Federation, store: Store) -> None:
        self._settings, self._federation, self._store = settings, federation, store
        self._num_clients = federation.task.data.num_clients

    def numbers(
        self, *, before: ServerCheckpoint, after: ServerCheckpoint, history: Sequence[Record]
    ) -> dict[str, float]:
        """Return what there is to record of a round, NaN for each number in a round that is not due."""
        if before.round % self._settings.every:
            return dict.fromkeys(CERTIFICATE, math.nan)
        theta: Vector = before.server.theta
        rhos: list[float] = []
        found = certificate_of(self._shares(before, rhos))
        sums = [float(sum) for sum in (found.lagrangian, found.gap, found.theta, found.w, found.consensus)]
        dual = math.sqrt(self._num_clients) * max(rhos) * float((after.server.theta - theta).double().norm())
        share_seen = before.seen / self._federation.weights.total
        values = (*sums, math.sqrt(float(found.consensus)), dual, float(found.largest_error), share_seen)
        numbers = dict(zip(CERTIFICATE, values, strict=True))
        if self._settings.clients == "all":
            warn_of_rise(before.round + 1, numbers, history, rho=max(rhos), float_type=theta.dtype)
        return numbers

    def _shares(self, before: ServerCheckpoint, rhos: list[float]) -> Iterator[tuple[float, Share]]:
        federation, theta = self._federation, before.server.theta
        chosen = self._chosen(before.round + 1)
        for client in chosen:
            state: Any = self._store.get(client)
            newcomer = state is None
            if newcomer:
                start = federation.initial if federation.algorithm.newcomer == "initial" else theta
                state = federation.algorithm.init_client(start)
            objective = federation.task.objective(client, buffers=before.buffers)
            value, gradient = objective.value_and_gradient(state.w)
            rhos.append(float(state.rho))
            point = {"w": state.w[None], "y": state.y[None], "gradient": gradient[None]}
            own = share(**point, theta=theta, rho=rhos[-1], value=torch.tensor([value], dtype=torch.float64))
            if newcomer:  # its dual does not come from a solve
                own = own._replace(error=torch.zeros_like(own.error))
            # Weights of mean 1: then sums are the paper's where all clients weigh the same.
            weight = federation.weights(client) * self._num_clients / federation.weights.total
            yield weight * self._num_clients / len(chosen), own

    def _chosen(self, round: int) -> Sequence[int]:
        number = self._settings.clients
        if number == "all":
            return range(self._num_clients)
        generator = stream(self._federation.options.seed, "certificate", round)
        return [int(i) for i in sorted(generator.choice(self._num_clients, size=number, replace=False))]


def warn_of_old_rounds(
    settings: CertificateSettings, *, before: CertificateSettings | None, history: Sequence[Record]
) -> None:
    """Say that the rounds which are there already are not certified as asked, and will not be."""
    due = history[:: settings.every]
    lacking = sum(record.metrics.get("share_seen") is None for record in due)
    if lacking:
        what = f"{lacking} of the {len(history)} rounds that are there already have no certificate"
    elif due and before is not None and before != settings:
        what = f"the rounds that are there already have certificates of other settings ({before})"
    else:
        return
    logger.warning("%s, and stay as they are: to certify every round as asked, give another --out", what)


def warn_of_rise(
    round: int, numbers: dict[str, float], history: Sequence[Record], *, rho: float, float_type: torch.dtype
) -> None:
    """Say that the Lagrangian rose, once for each rise: by more than Lemma 2 allows, or for the first time at all.

    If rho > (1 + sqrt 5) L, every f_i is smooth with L = rho / (1 + sqrt 5) too, and with this L the lemma bounds a
    rise by the errors of the local solves alone: (1 + sqrt 5)/2 + 8 times their sum over rho. No L need be known.
    """
    past = [record for record in history if record.number("share_seen") >= 1]
    if not past:
        return
    last, value = past[-1], numbers["lagrangian"]
    rise = value - last.number("lagrangian")
    if rise <= 16 * torch.finfo(float_type).eps * abs(value):
        return
    updates = sum(len(record.clients) for record in history[last.round - 1 :])
    error = max(numbers["largest_error"], last.number("largest_error"))
    explained = updates * error * ((1 + math.sqrt(5)) / 2 + 8) / rho
    risen = [b.number("lagrangian") > a.number("lagrangian") for a, b in pairwise(past)]
    if rise > explained and not any(risen[-1:]):
        why = (
            f"of which the errors of the local solves explain {explained:.3g}: the run has left the region of "
            "Theorem 1 (rho > (1 + sqrt 5) L, eta = |S|/m)"
        )
    elif rise <= explained and not any(risen):
        why = f"for the first time; the errors of the local solves explain up to {explained:.3g}"
    else:
        return
    logger.warning("round %d met a Lagrangian that is %.3g higher than in round %d, %s", round, rise, last.round, why)
