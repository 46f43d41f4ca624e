"""Law 7, one family (docs/FAMILY.md): what a server broadcasts is the mean of the round's models and a momentum h.

    h <- (1 - a) h + a b (bar - previous bar),  broadcast = bar + h,  with bar = theta^0 and h = 0 at first

The rounds are played, and the recursion is worked out beside them, in numpy, from the models that clients returned.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedadmm.algorithms import AdaBest, AFedPD, FastFedADMM, FedACG, FedADMM, FedAvg, FedDyn, FedProx, LookAhead
from fedadmm.core.algorithm import Algorithm
from play import Watched
from worlds import NUM_CLIENTS, World, quadratic_world

WHO = ([0, 1, 3], [0, 2], [1, 2, 4], [3], [0, 1, 2, 3, 4], [0, 4], [1, 3], [2, 4])
WEIGHTS = (1.0, 4.0, 2.0, 7.0, 3.0)


class Round(NamedTuple):
    """A round as its clients saw it."""

    broadcast: np.ndarray
    models: np.ndarray  # [client of the round, d]
    old: np.ndarray  # each one's own model of its last visit; what it got, if there was none
    weights: np.ndarray

    @property
    def bar(self) -> np.ndarray:
        """The mean of the round's models."""
        return self.weights @ self.models / self.weights.sum()

    @property
    def share(self) -> float:
        """The round's clients among all."""
        return float(self.weights.sum() / sum(WEIGHTS))


def _played(algorithm: Algorithm, world: World) -> Iterator[tuple[Round, np.ndarray]]:
    """Yield each round, and what is broadcast after it."""
    last: dict[int, np.ndarray] = {}
    seen: list[tuple[int, np.ndarray, np.ndarray]] = []

    def watch(*, server: Any, upload: Any, after: Any, problem: Any, **_: Any) -> None:
        got = server.theta.numpy()
        w = after.w if isinstance(algorithm, FedADMM) else server.theta + upload[0]
        seen.append((problem.client, w.numpy(), last.get(problem.client, got)))

    play = world.play(Watched(algorithm, on_client=watch), weights=WEIGHTS)
    for clients in WHO:
        seen.clear()
        broadcast = algorithm.download(play.checkpoint.server).theta.numpy()
        play.round(clients)
        ids, models, old = zip(*seen, strict=True)
        last |= dict(zip(ids, models, strict=True))
        weights = np.array([WEIGHTS[client] for client in ids])
        following = algorithm.download(play.checkpoint.server).theta.numpy()
        yield Round(broadcast, np.array(models), np.array(old), weights), following


# a of a round, and b.
MEMBERS: dict[str, tuple[Algorithm, Callable[[float], float], float]] = {
    "FedAvg": (FedAvg(), lambda share: 1.0, 0.0),
    "FedProx": (FedProx(rho=0.5), lambda share: 1.0, 0.0),
    "FedACG": (FedACG(lam=0.85, beta=0.1), lambda share: 1.0, 0.85),
    "AdaBest": (AdaBest(beta=0.7, mu=0.3), lambda share: 1.0, 0.7),
    "A-FedPD": (AFedPD(rho=0.5), lambda share: 1.0, 1.0),
    "FedDyn, rho 0.5": (FedDyn(rho=0.5), lambda share: share, 1.0),
    "FedDyn, rho 3": (FedDyn(rho=3.0), lambda share: share, 1.0),  # whatever rho is
}


@pytest.mark.parametrize("name", MEMBERS)
def test_what_is_broadcast_is_the_mean_model_and_a_momentum(name: str) -> None:
    algorithm, a_of, b = MEMBERS[name]
    world = quadratic_world()
    previous, h = world.theta.numpy(), np.zeros(3)
    moved = 0.0
    for round, following in _played(algorithm, world):
        a = a_of(round.share)
        h = (1 - a) * h + a * b * (round.bar - previous)
        np.testing.assert_allclose(following, round.bar + h, rtol=1e-12, atol=1e-12)
        previous, moved = round.bar, moved + np.abs(h).max()
    assert (moved > 0.1) == (b > 0)


def test_algorithm_1_has_each_clients_own_old_model_in_the_place_of_the_last_mean() -> None:
    # Which is why clients that were long away pull theta back.
    for round, following in _played(FedADMM(rho=0.5, eta=1.0), quadratic_world()):
        h = round.bar - round.weights @ round.old / round.weights.sum()
        np.testing.assert_allclose(following, round.bar + h, rtol=1e-12, atol=1e-12)


def test_fast_fedadmm_has_a_gain_that_its_guard_shortens() -> None:
    world, gains = quadratic_world(), []
    previous = world.theta.numpy()
    for round, following in _played(FastFedADMM(rho=0.5, look_ahead=0.8), world):
        step = round.bar - previous
        gains.append((following - round.bar) @ step / (step @ step))
        np.testing.assert_allclose(following, round.bar + gains[-1] * step, rtol=1e-12, atol=1e-12)
        previous = round.bar
    assert max(gains) == pytest.approx(0.8)
    assert 0 < min(gains) < 0.7


def test_with_everyone_feddyn_is_a_fedpd() -> None:
    # a = 1 for both, and the same local problem: FedDyn's centre theta + y_mean / rho is where A-FedPD's clients start.
    ends = []
    for algorithm in (FedDyn(rho=0.5), AFedPD(rho=0.5)):
        play = quadratic_world().play(algorithm).rounds([range(NUM_CLIENTS)] * 6)
        ends.append(algorithm.download(play.checkpoint.server).theta.numpy())
    np.testing.assert_allclose(*ends, rtol=1e-12, atol=1e-12)


def test_fedacg_without_look_ahead_is_fedprox_and_adabest_without_estimates_is_its_look_ahead() -> None:
    plays = [
        quadratic_world().play(algorithm).rounds(WHO)
        for algorithm in (FedACG(lam=0.0, beta=0.5), FedProx(rho=0.5), FedACG(lam=0.7, beta=0.0), AdaBest(0.7, mu=0.0))
    ]
    acg, prox, ahead, best = (play.theta.numpy() for play in plays)
    np.testing.assert_allclose(acg, prox, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ahead, best, rtol=1e-12, atol=1e-12)


def test_a_look_ahead_around_fedavg_is_fedacg_and_its_centre_stays_behind() -> None:
    pairs = [
        (LookAhead(look_ahead=0.7), FedACG(lam=0.7, beta=0.0)),
        (LookAhead(look_ahead=0.0, inner=FedProx(rho=0.5)), FedProx(rho=0.5)),
        (LookAhead(look_ahead=0.7, inner=FedProx(rho=0.5)), FedACG(lam=0.7, beta=0.5)),  # it is held to its start
    ]
    gaps = []
    for algorithms in pairs:
        ours, theirs = (quadratic_world().play(each).rounds(WHO).theta for each in algorithms)
        gaps.append(float((ours - theirs).abs().max()))
    assert max(gaps[:2]) < 1e-12 < 1e-3 < gaps[2]
