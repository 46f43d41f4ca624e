"""Law 6, over rounds: methods with momentum or memory against recursions written from their papers, in numpy.

The recursions have the papers' symbols and their tables at the server. Five quadratics in three dimensions; a client
takes K gradient steps of LR, and some clients are away for long.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fedadmm.algorithms import MIFA, AdaBest, AFedPD, FedACG, FedCM, FedDC, FedExP, FedVARP, LocalGHBM
from fedadmm.core.algorithm import Algorithm
from play import Play
from quadratics import heterogeneous
from worlds import NUM_CLIENTS, quadratic_world

K, LR = 4, 0.2
WHO = ([0, 1, 3], [0, 2], [1, 2, 4], [3], [0, 1, 2, 3, 4], [0, 4], [1, 3], [2, 4], [0, 1])
EVERYONE = [list(range(NUM_CLIENTS))] * 6
TASK = heterogeneous(NUM_CLIENTS, 3, num_steps=K, learning_rate=LR)
H, A = TASK.hessians.numpy(), TASK.targets.numpy()
START = np.array([1.0, -2.0, 0.5])
Models = Iterator[np.ndarray]
Rounds = list[list[int]]


def sgd(i: int, start: np.ndarray, step: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda g, w: LR * g) -> Any:
    """Return client i's model after K steps; `step` is what it takes off w, given the gradient and w."""
    w = start
    for _ in range(K):
        w = w - step(H[i] @ (w - A[i]), w)
    return w


def fedacg(rounds: Rounds, lam: float, beta: float) -> Models:
    theta, m = START, np.zeros(3)
    for clients in rounds:
        z = theta + lam * m
        delta = np.mean([sgd(i, z, lambda g, w, z=z: LR * (g + beta * (w - z))) - z for i in clients], axis=0)
        m = lam * m + delta
        theta = theta + m
        yield theta


def fedvarp(rounds: Rounds, eta_s: float) -> Models:
    w, y = START, np.zeros((NUM_CLIENTS, 3))
    for clients in rounds:
        delta = {i: (w - sgd(i, w)) / (LR * K) for i in clients}
        v = np.mean([delta[i] - y[i] for i in clients], axis=0) + y.mean(axis=0)
        w = w - eta_s * LR * K * v
        for i in clients:
            y[i] = delta[i]
        yield w


def mifa(rounds: Rounds) -> Models:
    w, table = START, {}
    for clients in rounds:
        table |= {i: (w - sgd(i, w)) / LR for i in clients}
        w = w - LR * np.mean(list(table.values()), axis=0)
        yield w


def fedexp(rounds: Rounds, epsilon: float) -> Models:
    w = last = START
    for clients in rounds:
        deltas = [w - sgd(i, w) for i in clients]
        mean = np.mean(deltas, axis=0)
        eta_g = max(1.0, sum(d @ d for d in deltas) / (2 * len(clients) * (mean @ mean + epsilon)))
        w, last = w - eta_g * mean, w
        yield (w + last) / 2


def adabest(rounds: Rounds, beta: float, mu: float) -> Models:
    theta = bar = START
    h_i, t_i = np.zeros((NUM_CLIENTS, 3)), np.zeros(NUM_CLIENTS)
    for t, clients in enumerate(rounds, 1):
        models = []
        for i in clients:
            w = sgd(i, theta, lambda g, w, i=i: LR * (g - h_i[i]))
            models.append(w)
            h_i[i] = h_i[i] / (t - t_i[i]) + mu * (theta - w)
            t_i[i] = t
        bar, last = np.mean(models, axis=0), bar
        theta = bar - beta * (last - bar)
        yield bar


def a_fedpd(rounds: Rounds, rho: float) -> Models:
    theta, lam = START, np.zeros((NUM_CLIENTS, 3))
    for clients in rounds:
        w = {i: sgd(i, theta, lambda g, w, i=i, theta=theta: LR * (g + lam[i] + rho * (w - theta))) for i in clients}
        bar = np.mean(list(w.values()), axis=0)
        for i in range(NUM_CLIENTS):
            lam[i] = lam[i] + rho * (w.get(i, bar) - theta)
        theta = bar + lam.mean(axis=0) / rho
        yield bar


def fedcm(rounds: Rounds, alpha: float, eta: float) -> Models:
    x, delta, eta_l = START, np.zeros(3), LR / alpha
    for clients in rounds:
        local = [sgd(i, x, lambda g, w, d=delta: eta_l * (alpha * g + (1 - alpha) * d)) for i in clients]
        delta = np.mean([x - w for w in local], axis=0) / (eta_l * K)
        x = x - eta * eta_l * K * delta
        yield x


def feddc(rounds: Rounds, alpha: float) -> Models:
    w, drift, state = START, np.zeros((NUM_CLIENTS, 3)), np.zeros((NUM_CLIENTS, 3))
    for clients in rounds:
        local, mean_state = [], state.mean(axis=0)
        for i in clients:
            correction = mean_state - state[i]
            theta = sgd(i, w, lambda g, v, i=i, c=correction, w=w: LR * (g + alpha * (drift[i] + v - w) + c))
            local.append(theta)
            drift[i] = drift[i] + theta - w
            state[i] = state[i] - mean_state + (w - theta) / (K * LR)
        w = np.mean(local, axis=0) + drift.mean(axis=0)
        yield w


def local_ghbm(rounds: Rounds, beta: float) -> Models:
    theta, anchors = START, {}
    for t, clients in enumerate(rounds, 1):
        local = []
        for i in clients:
            last, anchor = anchors.get(i, (0, theta))
            m = (anchor - theta) / (t - last)
            local.append(sgd(i, theta, lambda g, w, m=m: LR * (g + beta / (LR * K) * m)))
            anchors[i] = (t, theta)
        theta = np.mean(local, axis=0)
        yield theta


PAPERS: dict[str, tuple[Algorithm, Callable[[Rounds], Models], Any]] = {
    "FedACG": (FedACG(lam=0.8, beta=0.3), lambda rounds: fedacg(rounds, 0.8, 0.3), WHO),
    "FedVARP": (FedVARP(eta=0.7), lambda rounds: fedvarp(rounds, 0.7), WHO),
    "MIFA": (MIFA(), mifa, WHO),
    "FedExP": (FedExP(epsilon=0.01), lambda rounds: fedexp(rounds, 0.01), WHO),
    "AdaBest": (AdaBest(beta=0.8, mu=0.3), lambda rounds: adabest(rounds, 0.8, 0.3), WHO),
    "A-FedPD, everyone": (AFedPD(rho=0.5), lambda rounds: a_fedpd(rounds, 0.5), EVERYONE),
    "FedCM": (FedCM(alpha=0.3, eta=0.8), lambda rounds: fedcm(rounds, 0.3, 0.8), WHO),
    "FedDC": (FedDC(alpha=0.4), lambda rounds: feddc(rounds, 0.4), WHO),
    "LocalGHBM": (LocalGHBM(beta=0.6), lambda rounds: local_ghbm(rounds, 0.6), WHO),
}


@pytest.mark.parametrize("name", PAPERS)
def test_every_round_is_the_papers(name: str) -> None:
    algorithm, recursion, rounds = PAPERS[name]
    world = quadratic_world()
    assert np.array_equal(world.theta.numpy(), START)
    play = world.play(algorithm)
    for clients, expected in zip(rounds, recursion(list(rounds)), strict=True):
        play.round(clients)
        np.testing.assert_allclose(algorithm.model(play.checkpoint.server).numpy(), expected, rtol=1e-11, atol=1e-11)
    assert np.abs(play.theta.numpy() - START).max() > 0.5


def test_with_few_in_a_round_all_of_a_fedpds_clients_share_the_surprise() -> None:
    # The paper: a client of the round changes by w - next, an absent one by nothing. Ours: the mean of all is taken off
    # again, so both differ by the surprise, next - z, in shares of p for the absent and p - 1 for those of the round.
    play = Play(AFedPD(rho=0.5), TASK, quadratic_world().theta, num_clients=NUM_CLIENTS)
    for clients in WHO:
        before, z = _centred(play), play.algorithm.download(play.checkpoint.server).theta.numpy()
        steps = {visit.client: visit.upload.step.numpy() for visit in play.visits(clients)}
        play.round(clients)
        following, share = play.theta.numpy(), len(clients) / NUM_CLIENTS
        for client, after in _centred(play).items():
            papers = z + steps[client] - following if client in steps else np.zeros(3)
            surprise = (following - z) * ((1 - share) if client in steps else -share)
            np.testing.assert_allclose(after - before[client], papers + surprise, rtol=1e-11, atol=1e-11)


def _centred(play: Play) -> dict[int, np.ndarray]:
    """Return each client's dual less the mean dual, over rho."""
    mean, none = play.checkpoint.server.mu_mean.numpy(), np.zeros(3)
    states = play.states
    return {i: (states[i].mu.numpy() if i in states else none) - mean for i in range(NUM_CLIENTS)}
