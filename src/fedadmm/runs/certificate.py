"""What a run records of the analysis as it goes: the Lagrangian, V^t by its terms, and the residuals of ADMM."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch

from fedadmm.config.certificate import CertificateSettings
from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.round import ServerCheckpoint
from fedadmm.core.seeds import stream
from fedadmm.core.store import Store
from fedadmm.runs.lagrangian import Share, certificate_of, share
from fedadmm.runs.records import Record
from fedadmm.training.task import LearningTask

logger = logging.getLogger(__name__)

# As a round finds them, when round - 1 rounds are done; but the dual residual is of the step that the round makes.
KEYS = (
    "lagrangian",
    "V",  # the sum of the next three
    "V_theta",  # |grad_theta L|^2
    "V_w",  # the sum of |grad_{w_i} L_i|^2
    "V_consensus",  # the sum of |w_i - theta|^2
    "primal_residual",  # the root of V_consensus
    "dual_residual",  # sqrt(m) rho |theta_new - theta|
    "largest_error",  # of |grad f_i(w_i) + y_i|^2 over the clients seen: the epsilon of their last solves
    "share_seen",  # of the clients, those visited at least once
)


class Certifier:
    """Looks at a run between two rounds; it changes nothing of it."""

    def __init__(
        self,
        settings: CertificateSettings,
        algorithm: AnyAlgorithm,
        task: LearningTask,
        store: Store,
        *,
        initial: Vector,
        weight: Callable[[int], float],
        registered: float,
        seed: int,
    ) -> None:
        self._settings, self._algorithm, self._task, self._store = settings, algorithm, task, store
        self._initial, self._seed = initial, seed
        self._num_clients = task.data.num_clients
        self._weight, self._registered = weight, registered

    def numbers(
        self, *, before: ServerCheckpoint, after: ServerCheckpoint, history: Sequence[Record]
    ) -> dict[str, float]:
        """Return what there is to record of a round, NaN for each number in a round that is not due."""
        if before.round % self._settings.every:
            return dict.fromkeys(KEYS, math.nan)
        theta: Vector = before.server.theta
        rhos: list[float] = []
        found = certificate_of(self._shares(before, rhos))
        gap = found.gap
        step = float((after.server.theta - theta).double().norm())
        values = (
            float(found.lagrangian),
            float(gap.total),
            float(gap.theta),
            float(gap.w),
            float(gap.consensus),
            math.sqrt(float(gap.consensus)),
            math.sqrt(self._num_clients) * max(rhos) * step,
            float(found.largest_error),
            before.seen / self._registered,
        )
        numbers = dict(zip(KEYS, values, strict=True))
        if self._settings.clients == "all":
            warn_of_rise(before.round + 1, numbers, history, rho=max(rhos), float_type=theta.dtype)
        return numbers

    def _shares(self, before: ServerCheckpoint, rhos: list[float]) -> Iterator[tuple[float, Share]]:
        theta: Vector = before.server.theta
        chosen = self._chosen(before.round + 1)
        for client in chosen:
            state: Any = self._store.get(client)
            newcomer = state is None
            if newcomer:
                start = self._initial if self._algorithm.newcomer == "initial" else theta
                state = self._algorithm.init_client(start)
            objective = self._task.objective(client, buffers=before.buffers)
            value, gradient = objective.value_and_gradient(state.w)
            rhos.append(float(state.rho))
            own = share(
                w=state.w[None],
                y=state.y[None],
                theta=theta,
                rho=float(state.rho),
                value=torch.tensor([value], dtype=torch.float64),
                gradient=gradient[None],
            )
            if newcomer:  # its dual does not come from a solve
                own = own._replace(error=torch.zeros_like(own.error))
            # Weights of mean 1: then sums are the paper's where all clients weigh the same.
            weight = self._weight(client) * self._num_clients / self._registered
            yield weight * self._num_clients / len(chosen), own

    def _chosen(self, round: int) -> Sequence[int]:
        number = self._settings.clients
        if number == "all":
            return range(self._num_clients)
        generator = stream(self._seed, "certificate", round)
        return [int(i) for i in sorted(generator.choice(self._num_clients, size=number, replace=False))]


def is_certifiable(kind: type[Any]) -> bool:
    """Return whether clients of this type keep what the Lagrangian is made of."""
    return {"w", "y", "rho"} <= set(getattr(kind, "_fields", ()))


def check_certifiable(
    settings: CertificateSettings, algorithm: AnyAlgorithm, *, kind: type[Any], num_clients: int
) -> None:
    """Refuse a method whose clients keep no w, y and rho, and a sample larger than the federation."""
    if not is_certifiable(kind):
        raise InputError(
            f"{type(algorithm).__name__} has no certificate: its clients do not keep w, y and rho; use fedadmm, or "
            "leave out [certificate]"
        )
    if settings.clients != "all" and settings.clients > num_clients:
        raise InputError(f'certificate.clients={settings.clients} of {num_clients} clients cannot be drawn; use "all"')


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
    facts = (round, rise, last.round, explained)
    if rise > explained and not any(risen[-1:]):
        logger.warning(
            "round %d met a Lagrangian that is %.3g higher than in round %d, of which the errors of the local solves "
            "explain %.3g: the run has left the region of Theorem 1 (rho > (1 + sqrt 5) L, eta = |S|/m)",
            *facts,
        )
    elif rise <= explained and not any(risen):
        logger.warning(
            "round %d met a Lagrangian that is %.3g higher than in round %d, for the first time; the errors of the "
            "local solves explain up to %.3g",
            *facts,
        )
