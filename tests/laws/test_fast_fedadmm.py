"""What fast FedADMM is in its corners, held to recursions that are written from the papers; and its guard."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from fedadmm.algorithms import FastFedADMM, FedACG, FedAvg, fast_fedadmm
from fedadmm.core.algorithm import Algorithm, Turnout
from fedadmm.core.errors import InputError
from fedadmm.core.schedules import Constant
from play import Play
from quadratics import Quadratics, heterogeneous

CLIENTS = heterogeneous(10, 4, seed=2)
START = torch.full((4,), 3.0).double()
SOME = [[0, 3, 4], [1, 3, 9], [2, 5, 8], [0, 6, 7], [1, 2, 9]] * 4


def _play(algorithm: Algorithm, clients: Quadratics = CLIENTS, num_clients: int = 10) -> Play:
    return Play(algorithm, clients, START.to(clients.targets), num_clients=num_clients)


def test_with_everyone_and_no_look_ahead_it_is_consensus_admm() -> None:
    """Boyd et al. (2011), equations 7.3 to 7.5 in scaled form: x_i, then z = mean(x_i + u_i), then u_i += x_i - z."""
    rho, play = 0.7, _play(FastFedADMM(rho=0.7, look_ahead=0.0, average=0.0))
    hessians, targets = CLIENTS.hessians.numpy(), CLIENTS.targets.numpy()
    z, u = START.numpy(), np.zeros_like(targets)
    for _ in range(20):
        x = np.stack(
            [
                np.linalg.solve(h + rho * np.eye(4), h @ t + rho * (z - u_i))
                for h, t, u_i in zip(hessians, targets, u, strict=True)
            ]
        )
        z = (x + u).mean(axis=0)
        u = u + x - z
        play.round(range(10))
        np.testing.assert_allclose(play.theta.numpy(), z, atol=1e-12)
    np.testing.assert_allclose(play.theta.numpy(), CLIENTS.minimiser().numpy(), atol=1e-3)


def test_without_duals_it_is_fedacg_and_without_look_ahead_fedavg() -> None:
    # Long training from a point ahead makes large first steps, at which the guard would differ: none of these is one.
    ours = _play(FastFedADMM(rho=0.0, look_ahead=0.5, average=0.0))
    acg = _play(FedACG(lam=0.5, beta=0.0))
    for clients in SOME:
        ours.round(clients)
        acg.round(clients)
        assert ours.checkpoint.server.trust == 1.0
    torch.testing.assert_close(ours.checkpoint.server.bar, acg.checkpoint.server.theta, rtol=1e-12, atol=1e-12)
    plain = _play(FastFedADMM(rho=0.0, look_ahead=0.0, average=0.0)).rounds(SOME)
    torch.testing.assert_close(plain.theta, _play(FedAvg()).rounds(SOME).theta, rtol=1e-12, atol=1e-12)


def test_by_itself_it_looks_ahead_in_the_coordinates_alone_in_which_the_clients_led_on() -> None:
    play, bar, gains, ahead = _play(FastFedADMM()), START, [], 0
    for clients in SOME:
        broadcast = play.theta
        play.round(clients)
        server = play.checkpoint.server
        way, step = server.bar - bar, server.bar - broadcast
        led_on = torch.sign(way) == torch.sign(step)
        torch.testing.assert_close(server.theta[~led_on], server.bar[~led_on], rtol=0, atol=0)
        gains.append((server.theta - server.bar)[led_on] / way[led_on])
        torch.testing.assert_close(gains[-1], gains[-1].mean().expand(int(led_on.sum())))  # one gain for all
        bar, ahead = server.bar, ahead + int(led_on.sum())
    assert 0 < ahead < 4 * len(SOME)
    assert float(torch.cat(gains).max()) == pytest.approx(1.25 * 2 / 5)  # three clients are in each round


@pytest.mark.parametrize(("num_uploads", "share"), [(0.5, 0), (1, 0), (2, 1 / 5), (5, 4 / 5), (6, 1), (60, 1)])
def test_by_itself_it_looks_less_far_ahead_where_few_clients_are_in_a_round(num_uploads: float, share: float) -> None:
    # The last broadcast was at 2, a way of 1 from the bar before; with a step of 1 the way is 2.
    algorithm = FastFedADMM(rho=0.0)
    start = algorithm.init_server(torch.ones(1))._replace(theta=torch.tensor([2.0]))
    turnout = Turnout(round=2, active=1.0, registered=1.0, seen=1.0, num_uploads=num_uploads)
    after = algorithm.server_update(start, fast_fedadmm.Upload(torch.ones(1), 0.0), turnout)
    assert float(after.bar) == 3.0
    assert float(after.theta) == pytest.approx(3.0 + share * 1.25 * 2.0)


def test_what_leads_on_for_ever_does_not_run_away() -> None:
    # A loss of exp(-w): its gradient fades and never turns, as where examples are told apart already. A step goes on by
    # exp(-w), so that w is about log t; with ten times a step on top of it, it is about log 11 t.
    server, algorithm = FastFedADMM(rho=0.0).init_server(torch.zeros(1).double()), FastFedADMM(rho=0.0)
    plain, rounds = 0.0, 300
    for t in range(1, rounds + 1):
        mean = fast_fedadmm.Upload(torch.exp(-server.theta), 0.0)
        server = algorithm.server_update(server, mean, Turnout(round=t, active=1.0, registered=1.0, seen=1.0))
        plain += math.exp(-plain)
    assert plain == pytest.approx(math.log(rounds), abs=0.1)
    assert plain < float(server.bar) < plain + 2 * math.log(11)


@pytest.mark.parametrize("look_ahead", [0.85, "auto"])
@pytest.mark.parametrize("learning_rate", [1.5, 1.9])
@pytest.mark.slow
def test_a_run_that_survives_without_a_look_ahead_survives_with_it(learning_rate: float, look_ahead: Any) -> None:
    # One gradient step of everyone is gradient descent on the mean, which is stable below 2 / L; Nesterov's is not.
    curvature = float(torch.linalg.eigvalsh(CLIENTS.hessians.mean(dim=0)).max())
    clients = Quadratics(CLIENTS.hessians, CLIENTS.targets, num_steps=1, learning_rate=learning_rate / curvature)
    distances = {}
    for algorithm in (FastFedADMM(rho=0.0, look_ahead=0.0), FastFedADMM(rho=0.0, look_ahead=look_ahead)):
        play = _play(algorithm, clients).rounds([range(10)] * 400)
        distances[algorithm.look_ahead] = float((play.checkpoint.server.bar - CLIENTS.minimiser()).norm())
    assert distances[0.0] < 1e-6
    assert distances[look_ahead] < 100
    assert play.checkpoint.server.trust < 1.0


def test_rho_grows_with_the_visits_and_with_the_share_of_clients_up_to_an_eighth() -> None:
    # Exact solves without rho: |g| / |w - theta| lies between the curvatures of each client.
    play = _play(FastFedADMM())
    play.round([4])
    server = play.checkpoint.server
    assert 0.1 < server.stiffness < 1.0
    assert server.rho == pytest.approx(0.1 * 1.01 * server.stiffness / 2)
    play.round([])
    play.round([1])  # two updates in three rounds
    assert play.checkpoint.server.stiffness == server.stiffness
    assert play.checkpoint.server.rho == pytest.approx(0.2 / 3 * 1.02 * server.stiffness / 2)
    play.round(range(10))  # 0.3 of all in a round, in the mean over four: more than an eighth
    assert play.checkpoint.server.rho == pytest.approx(1 / 64 / 0.3 * 1.05 * server.stiffness / 2)


def test_the_model_is_the_running_mean_of_bar() -> None:
    algorithm = FastFedADMM(average=0.6)
    play, bars = _play(algorithm), []
    for clients in SOME[:6]:
        play.round(clients)
        bars.append(play.checkpoint.server.bar)
    weights = 0.6 ** torch.arange(5, -1, -1).double()
    mean = (torch.stack(bars) * (weights / weights.sum())[:, None]).sum(dim=0)
    torch.testing.assert_close(algorithm.model(play.checkpoint.server), mean, rtol=1e-12, atol=1e-12)


def test_by_itself_the_model_is_a_mean_of_theta_whose_weights_grow_with_the_eighth_power_of_the_round() -> None:
    # The weight of round t is C(t + 7, 8): 1, 9, 45, ..., so that of the newest is 9 / (8 + t) of all so far.
    play, thetas = _play(FastFedADMM()), []
    for clients in SOME[:6]:
        play.round(clients)
        thetas.append(play.theta)
    weights = torch.tensor([math.comb(t + 7, 8) for t in range(1, 7)]).double()
    mean = (torch.stack(thetas) * (weights / weights.sum())[:, None]).sum(dim=0)
    torch.testing.assert_close(FastFedADMM().model(play.checkpoint.server), mean, rtol=1e-12, atol=1e-12)


def test_rho_is_at_most_half_the_stiffness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedadmm.algorithms.fast_fedadmm.LARGEST_SHARE", 1.0)  # or it takes 560 rounds
    play = _play(FastFedADMM()).rounds([range(10)] * 3)
    server = play.checkpoint.server
    assert server.rho == server.stiffness / 2


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("rho", "much", "rho='much' is unknown; use a number or \"auto\""),
        ("rho", -1.0, "rho=-1.0 is out of range; use a finite number of at least 0"),
        ("look_ahead", "far", "look_ahead='far' is unknown; use a number or \"auto\""),
        ("look_ahead", 1.25, 'look_ahead=1.25 is out of range; use a number from 0 to below 1, or "auto"'),
        ("average", "long", "average='long' is unknown; use a number or \"auto\""),
        ("average", 1.0, "average=1.0 is out of range; use a number from 0 to below 1"),
        ("average", True, 'average=True is not a number; use a number from 0 to below 1, or "auto"'),
        ("look_ahead", Constant(0.5), "look_ahead=Constant(value=0.5) is not a number; use a number from 0 to below 1"),
        ("rho", Constant(0.5), "is a schedule; FastFedADMM needs one number for all rounds, such as 0.1"),
    ],
)
def test_what_is_neither_auto_nor_a_number_in_range_is_refused(field: str, value: object, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        FastFedADMM(**{field: value})
