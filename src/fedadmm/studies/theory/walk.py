"""A method at work on quadratics, with everything that the analysis speaks of at every round, and Lemmas 1 to 3 there.

The lemmas are inequalities between numbers: as printed, and as they hold from t = 0 on. The proofs use
y_i = e_i - grad f_i(w_i) with |e_i|^2 <= epsilon_i. A dual of zero has e_i = grad f_i(theta^0), whatever epsilon_i is.
So the lemmas hold from the start once the error of a client that was never visited is |grad f_i(theta^0)|^2
(`Path.errors`); and as printed where nobody who matters is new.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.engine import Task
from fedadmm.core.participation import Devices, Uniform
from fedadmm.core.round import ServerCheckpoint, run_round
from fedadmm.engine.planner import Planner
from fedadmm.engine.serial import SerialEngine
from fedadmm.runs.certificate import Certificate, certificate_of, share
from fedadmm.state.memory import MemoryStore
from fedadmm.studies.theory.bounds import descent
from fedadmm.studies.theory.quadratics import NO_BUFFERS, Quadratics, drawn
from fedadmm.training.local import LocalTraining

ROUNDING = 1e-12


class Path(NamedTuple):
    """All variables at t = 0, 1, ..., T, where t rounds are done; the client axis follows that of t."""

    task: Quadratics
    rho: float
    active: torch.Tensor  # [T, client]: who takes part in the round that begins at t
    theta: Vector  # [T + 1, d]
    w: Vector  # [T + 1, client, d]
    y: Vector  # [T + 1, client, d]
    seen: torch.Tensor  # [T + 1, client]: visited at least once
    errors: torch.Tensor  # [T + 1, client]: epsilon_i of the last solve; before the first, |grad f_i(theta^0)|^2
    certificate: Certificate  # of [T + 1]

    @property
    def everyone(self) -> int:
        """The first t at which every client has been visited; T + 1 if there is none."""
        return int((~self.seen.all(dim=1)).sum())


def rounds(
    algorithm: AnyAlgorithm, task: Quadratics, *, theta: Vector, draws: Iterable[Iterable[int]]
) -> Iterator[tuple[ServerCheckpoint, dict[int, Any]]]:
    """Play a round for each draw of clients; yield the server's checkpoint and the states of the clients visited."""
    checkpoint = ServerCheckpoint(0, algorithm.init_server(theta), NO_BUFFERS, 0.0)
    devices = Devices(len(task.targets))
    planner = Planner(algorithm, participation=Uniform(1.0), local=LocalTraining(), devices=devices, seed=0)
    store, applied = MemoryStore(), None
    engine = SerialEngine(algorithm, cast(Task, task), store, initial=theta)
    for active in draws:
        download = algorithm.download(checkpoint.server)
        asked = planner.assigned(checkpoint.round + 1, active, informed=applied, last_round=store.round_of)
        results = engine.run(download, buffers=NO_BUFFERS, assignments=asked)
        checkpoint, summary = run_round(
            algorithm, checkpoint, results, weight=lambda client: 1.0, registered=float(len(task.targets))
        )
        applied, counted = summary.clients, summary.clients + summary.silent
        store.commit(checkpoint, clients=counted, record={})
        yield checkpoint, {client: store.get(client) for client in counted}


def models(algorithm: AnyAlgorithm, task: Quadratics, *, participation: float, num_rounds: int) -> Iterator[Vector]:
    """Yield the model after each round, from theta^0 = 0 on, with so large a share of the clients in each."""
    draws = drawn(Uniform(participation), num_clients=len(task.targets), rounds=num_rounds)
    for checkpoint, _ in rounds(algorithm, task, theta=torch.zeros_like(task.targets[0]), draws=draws):
        yield algorithm.model(checkpoint.server)


def walk(algorithm: AnyAlgorithm, task: Quadratics, *, theta: Vector, draws: Sequence[Iterable[int]]) -> Path:
    """Return the path of a method whose clients keep w, y and rho, from w_i = theta^0 and y_i = 0 on."""
    length, num_clients = len(draws), len(task.targets)
    thetas = theta.expand(length + 1, -1).clone()
    w = theta.expand(length + 1, num_clients, -1).clone()
    y = torch.zeros_like(w)
    active = torch.zeros(length, num_clients, dtype=torch.bool)
    seen = torch.zeros(length + 1, num_clients, dtype=torch.bool)
    errors = _squared(task.gradients(w[0])).expand(length + 1, -1).clone()
    for t, (checkpoint, new) in enumerate(rounds(algorithm, task, theta=theta, draws=draws)):
        thetas[t + 1] = checkpoint.server.theta
        for client, state in new.items():
            active[t, client] = True
            w[t + 1 :, client], y[t + 1 :, client] = state.w, state.y
            seen[t + 1 :, client] = True
            errors[t + 1 :, client] = task.tolerance(client, checkpoint.round)
    rho = algorithm.init_client(theta).rho
    shares = share(w=w, y=y, theta=thetas, rho=rho, value=task.values(w), gradient=task.gradients(w))
    return Path(task, float(rho), active, thetas, w, y, seen, errors, certificate_of([(1.0, shares)]))


class Inequality(NamedTuple):
    """left <= right, up to the rounding of the numbers that went into them."""

    left: torch.Tensor
    right: torch.Tensor
    size: torch.Tensor

    @property
    def holds(self) -> torch.Tensor:
        """Whether it does, for each."""
        return self.left <= self.right + ROUNDING * self.size


Lemmas = tuple[Inequality, Inequality, Inequality]


def lemmas(path: Path, *, printed: bool) -> Lemmas:
    """Return the three lemmas along a path, as printed or as they hold from the start."""
    return lemma_1(path, printed=printed), lemma_2(path, printed=printed), lemma_3(path, printed=printed)


def lemma_1(path: Path, *, printed: bool) -> Inequality:
    """Bound the step of a dual by that of its model, [T, client]; nobody moves where `active` is False."""
    dual, step = _squared(path.y.diff(dim=0)), _squared(path.w.diff(dim=0))
    right = _errors(path, printed=printed) + 2 * path.task.smoothness**2 * step
    return Inequality(dual, right, _squared(path.y[1:]) + _squared(path.y[:-1]))


def lemma_2(path: Path, *, printed: bool) -> Inequality:
    """Bound the change of the Lagrangian in each round, [T]."""
    rho, smoothness = path.rho, path.task.smoothness
    each = -descent(rho=rho, smoothness=smoothness) * _squared(path.w.diff(dim=0))
    each = each + path.active * path.errors[1:] / (2 * smoothness) + _errors(path, printed=printed) / rho
    num_clients = path.w.shape[1]
    right = each.sum(dim=1) - num_clients * rho / 2 * _squared(path.theta.diff(dim=0))
    return Inequality(path.certificate.lagrangian.diff(), right, _size(path)[1:])


def lemma_3(path: Path, *, printed: bool) -> Inequality:
    """Bound the Lagrangian from below by f* less the errors, [T + 1]."""
    errors = path.errors * path.seen if printed else path.errors
    left = path.task.lowest_value - errors.sum(dim=1) / (2 * path.task.smoothness)
    return Inequality(left, path.certificate.lagrangian, _size(path) + abs(path.task.lowest_value))


def _errors(path: Path, *, printed: bool) -> torch.Tensor:
    """Return what the errors of a visit and of the one before allow a dual to move, squared."""
    now, last = path.errors[1:], path.errors[:-1]
    if not printed:
        return path.active * 4 * (now + last)
    return path.active * 8 * torch.maximum(now, torch.where(path.seen[:-1], last, now))


def _size(path: Path) -> torch.Tensor:
    """Return the size of what cancels in a Lagrangian."""
    return path.certificate.lagrangian.abs() + (path.rho * _squared(path.w) + _squared(path.y) / path.rho).sum(dim=1)


def _squared(vectors: torch.Tensor) -> torch.Tensor:
    return vectors.square().sum(dim=-1)
