"""Law 6: one round of every algorithm worked out by hand; tests/hand.py says of which clients."""

from typing import Any

import pytest
import torch

from fedadmm.algorithms import (
    ALGORITHMS,
    Averaged,
    FastFedADMM,
    FedAdam,
    FedADMM,
    FedADMMAuto,
    FedADMMReleased,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedDynAuto,
    FedHybrid,
    FedNova,
    FedPD,
    FedProx,
    FedSGD,
    FedYogi,
    RandomisedServer,
    Scaffold,
    fast_fedadmm,
    fedadmm,
    fedadmm_auto,
    fedadmm_released,
    fedavg,
    feddyn,
    feddyn_auto,
    fedhybrid,
    fedpd,
    scaffold,
)
from fedadmm.core.algorithm import Algorithm, NoState
from fedadmm.core.schedules import Step
from hand import Hand, check_hand, v
from laws.test_by_hand_family import FAMILY
from play import Play
from quadratics import on_a_line

# Client 0, w = 0, y = -1, u = 0 - 1/2 = -1/2: w = (3 + 1 + 2)/3 = 2, y = -1 + 2 (2 - 1) = 1, u = 2 + 1/2, delta = 3.
# Client 1, w = -2, y = 7, u = -2 + 7/2 = 3/2: w = (0 - 7 + 2)/5 = -1, y = 7 + 2 (-2) = 3, u = -1 + 3/2, delta = -1.
# The mean delta is 1.
ADMM: dict[str, Any] = {
    "server": fedadmm.Server(v(1.0)),
    "states": (fedadmm.Client(v(0.0), v(-1.0), 2.0), fedadmm.Client(v(-2.0), v(7.0), 2.0)),
    "uploads": ((3.0,), (-1.0,)),
    "states_after": ((2.0, 1.0, 2.0), (-1.0, 3.0, 2.0)),
}
# The same duals, but both start from theta: w - theta = 1 and -2, with a mean of -1/2; y = 1 and 3 as above.
DUALS: dict[str, Any] = {"states_after": ((1.0,), (3.0,)), "uploads": ((1.0,), (-2.0,))}
NO_STATE: dict[str, Any] = {"server": fedavg.Server(v(1.0)), "states": (NoState(), NoState()), "states_after": ((), ())}
# y_sum = -1 + 7 + 4, the third client's; then 10 + 2 * 2 * (-1/2) = 8 = 1 + 3 + 4.
DYN: dict[str, Any] = {
    "server": feddyn.Server(v(1.0), v(10.0)),
    "states": (feddyn.Client(v(-1.0)), feddyn.Client(v(7.0))),
}
# The same solutions with rho = 2, and rho was 1 when they came last, so z = rho w + y was -1 and 5, and is 5 and 1.
# |w - theta|^2 = 1 and 4, |w - w_old|^2 = 4 and 1, each with a mean of 5/2; the mean change of z is 1.
# The third client has w = 0, y = 4, rho = 1: z_sum = -1 + 5 + 4, then 10; rho_sum = 3, then 5. The mean w is -3/3 = -1,
# which the two clients' old ones are too, so fresh is their mean w, (1 + 2 - 1)/4 = 1/2; w_sum = -3 + 2 (1 + 1) = 1.
# `apart` grew from 1 to 5/2 and may grow to 2, so of the lead 1/2 - 1/5 theta takes 4/5: 10/5 + 6/25.
# Running means of 3 visits: 1/3 + (2/3) (5/2) = 2; 91/3 + (2/3) (5/2) = 32.
# The stiffness is 2, so rho = 2 (2/32)^(1/4) = 1.
AUTO: dict[str, Any] = {
    "server": fedadmm_auto.Server(v(1.0), 2.0, v(8.0), v(-3.0), 3.0, 2.0, 1.0, 1.0, 91.0),
    "states": (fedadmm_auto.Client(v(0.0), v(-1.0), 1.0), fedadmm_auto.Client(v(-2.0), v(7.0), 1.0)),
    "uploads": ((6.0, 2.0, 1.0, 0.0, 1.0, 1.0, 4.0), (-4.0, 2.0, 1.0, 0.0, 4.0, 4.0, 1.0)),
    "states_after": ((2.0, 1.0, 2.0), (-1.0, 3.0, 2.0)),
}
AUTO_SUMS = (10.0, 1.0, 5.0, 2.0, 2.0, 2.0, 32.0)
# push = 2 (w - theta) = 2 and -4, with a mean of -1; y_sum = 10 - 2 = 8; rho is the stiffness, 2, for nobody is new.
DYN_AUTO: dict[str, Any] = {
    "server": feddyn_auto.Server(v(1.0), 2.0, v(10.0), 2.0),
    "states": (feddyn.Client(v(-1.0)), feddyn.Client(v(7.0))),
    "uploads": ((2.0, 2.0, 0.0, 0.0), (-4.0, 2.0, 0.0, 0.0)),
    "states_after": ((1.0,), (3.0,)),
}
# Two steps of 1/2 on f + (c - c_i) w, with c = 1/2.
# c_0 = 1: 1 - (-2 - 1/2)/2 = 9/4; 9/4 - (-3/4 - 1/2)/2 = 23/8. c_0 = 1 - 1/2 - 15/8 = -11/8, a change of -19/8.
# c_1 = 0: 1 - (3 + 1/2)/2 = -3/4; -3/4 - (-9/4 + 1/2)/2 = 1/8. c_1 = 0 - 1/2 + 7/8 = 3/8, a change of 3/8.
# The mean step is (15/8 - 7/8)/2 = 1/2, the mean change -1, of which c takes 2/4.
SCAFFOLD: dict[str, Any] = {
    "server": scaffold.Server(v(1.0), v(0.5)),
    "states": (scaffold.Client(v(1.0)), scaffold.Client(v(0.0))),
    "uploads": ((1.875, -2.375), (-0.875, 0.375)),
    "states_after": ((-1.375,), (0.375,)),
    "num_steps": 2,
}
# w = 3 and 0.
STEPS: dict[str, Any] = {**NO_STATE, "uploads": ((2.0,), (-1.0,))}
ADAPTIVE: dict[str, Any] = {"eta": 2.0, "beta_1": 0.5, "beta_2": 0.5, "tau": 0.5}


def _remembering(*, m: float, v: float) -> dict[str, Any]:
    """Return FedAvg's round with a server that remembers m and v."""
    server = FedAdam().init_server(torch.ones(1).double())
    return {**STEPS, "server": server._replace(m=m + 0 * server.m, v=v + 0 * server.v)}


RANDOMISED = RandomisedServer(awake=0.5, inner=FedADMM(rho=2.0, eta="participation", newcomer="initial"))
HALF_AHEAD = RANDOMISED.init_server(v(1.0))._replace(ahead=v(1.25))

FAST: dict[str, Any] = {
    "server": fast_fedadmm.Server(v(1.0), v(0.5), v(0.0), v(3.0), 3.0, 4.0, 0.0, 2.0, 1 / 144, 1 / 144, 1.0),
    "states": (fast_fedadmm.Client(v(0.0)), fast_fedadmm.Client(v(2.0))),
    "uploads": ((4 / 3, 0.0), (-1.0, 0.0)),
    "states_after": ((4 / 3,), (1.0,)),
    "round": 2,
}
FAST_AFTER = (10 / 3, 3.0, 6.0, 0.0, 2.0, 1.1 / 144, 1 / 144, 1.0)

BY_HAND = {
    # mu_mean = 3/3 = 1. Client 0: the centre is 1 - (0 - 1) = 2, w = (3 + 2 2)/3 = 7/3, a step of 4/3. Client 1: the
    # centre is 1 - (2 - 1) = 0, w = 0, a step of -1. The mean is 1/6, bar = 7/6. Its square, 1/36, is twice two
    # usual ones, so theta = 7/6 + 1/2 (1/2) (7/6 - 1/2). The weights of rounds 1 and 2 in the average are 1/3 and 2/3.
    "FastFedADMM": Hand(
        FastFedADMM(rho=2.0, look_ahead=0.5, average=0.5), **FAST, server_after=(4 / 3, 7 / 6, 7 / 9, *FAST_AFTER)
    ),
    # The step is positive, as the way from 1 to 7/6 is; two uploads make 1/5: theta = 7/6 + 1/5 (5/4) (1/2) (7/6 - 1).
    "FastFedADMM, leading on": Hand(
        FastFedADMM(rho=2.0, average=0.5),
        **FAST | {"server": FAST["server"]._replace(bar=v(1.0))},
        server_after=(19 / 16, 7 / 6, 7 / 9, *FAST_AFTER),
    ),
    # 5/4 of the way from -1 to 7/6 would be more than ten times the step: theta = 7/6 + 1/5 (1/2) 10/6.
    "FastFedADMM, leading on far": Hand(
        FastFedADMM(rho=2.0, average=0.5),
        **FAST | {"server": FAST["server"]._replace(bar=v(-1.0))},
        server_after=(4 / 3, 7 / 6, 7 / 9, *FAST_AFTER),
    ),
    # The way from 2 to 7/6 is not: theta = bar.
    "FastFedADMM, turning back": Hand(
        FastFedADMM(rho=2.0, average=0.5),
        **FAST | {"server": FAST["server"]._replace(bar=v(2.0))},
        server_after=(7 / 6, 7 / 6, 7 / 9, *FAST_AFTER),
    ),
    # FedAvg's theta is 3/2; the average of 0 and 3/2 with the weights 1/3 and 2/3 is 1.
    "Averaged": Hand(
        Averaged(decay=0.5),
        **STEPS | {"server": Averaged().init_server(v(1.0))._replace(running_mean=v(0.0))},
        server_after=(1.5, 1.0),
        round=2,
    ),
    # The weight of round 2 is 9/10: 9/10 of 3/2.
    "Averaged, auto": Hand(
        Averaged(decay="auto"),
        **STEPS | {"server": Averaged().init_server(v(1.0))._replace(running_mean=v(0.0))},
        server_after=(1.5, 1.35),
        round=2,
    ),
    "FedADMM, eta 1": Hand(FedADMM(rho=2.0, eta=1.0), **ADMM, server_after=(2.0,)),
    "FedADMM, eta 1/2": Hand(FedADMM(rho=2.0, eta=0.5), **ADMM, server_after=(1.5,)),
    # eta = 2/4
    "FedADMM, participation": Hand(
        FedADMM(rho=2.0, eta="participation", newcomer="initial"), **ADMM, server_after=(1.5,)
    ),
    # eta = 2/3
    "FedADMM, seen": Hand(FedADMM(rho=2.0, eta="seen"), **ADMM, server_after=(1 + 2 / 3,)),
    # In round 5 rho is 2, and both came last while it was 1: u was 0 - 1 and -2 + 7, so delta is 7/2 and -9/2.
    "FedADMM, rho changed since": Hand(
        FedADMM(rho=Step(before=1.0, after=2.0, at_round=5)),
        **ADMM
        | {
            "states": (fedadmm.Client(v(0.0), v(-1.0), 1.0), fedadmm.Client(v(-2.0), v(7.0), 1.0)),
            "uploads": ((3.5,), (-4.5,)),
        },
        server_after=(0.5,),
        round=5,
    ),
    # One gradient step of 1/10 from w: client 0: -3 - 1 - 2 = -6, w = 0.6, y = -1.8, u = -0.3, delta = 0.2.
    # Client 1: -6 + 7 - 6 = -5, w = -1.5, y = 7 - 5 = 2, u = -0.5, delta = -2. The mean is -0.9.
    "FedADMM, a step from w": Hand(
        FedADMM(rho=2.0),
        **ADMM | {"uploads": ((0.2,), (-2.0,)), "states_after": ((0.6, -1.8, 2.0), (-1.5, 2.0, 2.0))},
        server_after=(0.1,),
        num_steps=1,
        learning_rate=0.1,
    ),
    # From theta = 1: client 0: -2 - 1 + 0 = -3, w = 1.3, y = -0.4, u = 1.1, delta = 1.6.
    # Client 1: 3 + 7 + 0 = 10, w = 0, y = 5, u = 2.5, delta = 1. The mean is 1.3.
    "FedADMM, a step from theta": Hand(
        FedADMM(rho=2.0, start="global"),
        **ADMM | {"uploads": ((1.6,), (1.0,)), "states_after": ((1.3, -0.4, 2.0), (0.0, 5.0, 2.0))},
        server_after=(2.3,),
        num_steps=1,
        learning_rate=0.1,
    ),
    # 2 (w - theta) = 2 and -4, with a mean of -1.
    "FedADMMReleased": Hand(
        FedADMMReleased(rho=2.0),
        server=fedadmm.Server(v(1.0)),
        states=(fedadmm_released.Client(v(-1.0)), fedadmm_released.Client(v(7.0))),
        **DUALS | {"uploads": ((2.0,), (-4.0,))},
        server_after=(0.0,),
        round=59,
    ),
    "FedADMMReleased, from round 60": Hand(
        FedADMMReleased(rho=2.0),
        server=fedadmm.Server(v(1.0)),
        states=(fedadmm_released.Client(v(-1.0)), fedadmm_released.Client(v(7.0))),
        **DUALS | {"uploads": ((2.0,), (-4.0,))},
        server_after=(0.5,),
        round=60,
    ),
    # Gradients 1 (1 - 3) = -2 and 3 (1 - 0) = 3, times -1/2; the mean is -1/4.
    "FedSGD": Hand(FedSGD(), **NO_STATE, uploads=((1.0,), (-1.5,)), server_after=(0.75,)),
    "FedAvg": Hand(FedAvg(), **STEPS, server_after=(1.5,)),
    "FedAvg, eta 2": Hand(FedAvg(eta=2.0), **STEPS, server_after=(2.0,)),
    # w = (3 + 2)/3 and 2/5: steps 2/3 and -3/5, with a mean of 1/30.
    "FedProx": Hand(FedProx(rho=2.0), **NO_STATE, uploads=((2 / 3,), (-0.6,)), server_after=(1 + 1 / 30,)),
    "Scaffold": Hand(Scaffold(eta=2.0), **SCAFFOLD, server_after=(2.0, 0.0)),
    # The same w and y as FedADMM's, whose u is what travels, whole: 2 + 1/2 and -1 + 3/2. The mean is theta.
    "FedPD": Hand(
        FedPD(rho=2.0),
        server=fedpd.Server(v(1.0)),
        states=(fedpd.Client(v(0.0), v(-1.0), v(9.0)), fedpd.Client(v(-2.0), v(7.0), v(9.0))),
        uploads=((2.5,), (0.5,)),
        states_after=((2.0, 1.0, 2.5), (-1.0, 3.0, 0.5)),
        server_after=(1.5,),
    ),
    # Two steps of 1/2: 1 + 1 + 1/2 = 5/2 and 1 - 3/2 + 3/4 = 1/4, so d = (3/2)/2 and (-3/4)/2, with a mean of 3/16.
    "FedNova": Hand(
        FedNova(eta=2.0),
        **NO_STATE,
        uploads=((0.75, 2.0), (-0.375, 2.0)),
        server_after=(1 + 2 * 2 * 3 / 16,),
        num_steps=2,
    ),
    # FedAvg's mean step is 1/2, so g = -1/2. v = -1/2 - 1/2, theta = 1 + 1/2.
    "FedAvgM": Hand(
        FedAvgM(eta=0.5, beta=0.5),
        **STEPS | {"server": FedAvgM().init_server(v(1.0))._replace(v=v(-1.0))},
        server_after=(1.5, -1.0),
    ),
    # Scaffold's mean step is 2 (1/2); v = 0 - 1.
    "FedAvgM, with Scaffold": Hand(
        FedAvgM(inner=Scaffold(eta=2.0)),
        **SCAFFOLD | {"server": FedAvgM(inner=Scaffold()).init_server(v(1.0))._replace(c=v(0.5))},
        server_after=(2.0, 0.0, -1.0),
    ),
    # m = 1/2 - 1/4, v = 31/8 + 1/8 = 4, theta = 1 - 2 (1/4) / (2 + 1/2).
    "FedAdam": Hand(FedAdam(**ADAPTIVE), **_remembering(m=1.0, v=7.75), server_after=(0.8, 0.25, 4.0)),
    # v = 33/8 - 1/8 = 4: above g^2 it falls by (1/2) g^2, and below it rises by that, to 1/8 + 1/8.
    "FedYogi, above": Hand(FedYogi(**ADAPTIVE), **_remembering(m=1.0, v=4.125), server_after=(0.8, 0.25, 4.0)),
    "FedYogi, below": Hand(FedYogi(**ADAPTIVE), **_remembering(m=1.0, v=0.125), server_after=(0.5, 0.25, 0.25)),
    "FedADMMAuto": Hand(FedADMMAuto(), **AUTO, server_after=(2.24, 1.0, *AUTO_SUMS)),
    "FedADMMAuto, eta seen": Hand(FedADMMAuto(eta="seen"), **AUTO, server_after=(2.0, 1.0, *AUTO_SUMS)),
    # 1 + (-1 + 8/3)/2
    "FedDynAuto": Hand(FedDynAuto(), **DYN_AUTO, server_after=(1 + 5 / 6, 2.0, 8.0, 2.0)),
    # 1 + (-1 + 8/4)/2
    "FedDynAuto, all": Hand(FedDynAuto(over="all"), **DYN_AUTO, server_after=(1.5, 2.0, 8.0, 2.0)),
    # 1 - 1/2 + (8/4)/2
    "FedDyn": Hand(FedDyn(rho=2.0), **DYN, **DUALS, server_after=(1.5, 8.0)),
    # 1 - 1/2 + (8/3)/2
    "FedDyn, seen": Hand(FedDyn(rho=2.0, over="seen"), **DYN, **DUALS, server_after=(0.5 + 4 / 3, 8.0)),
    # theta is 1 for the clients, so their mean delta is 1, of which 2/4 are booked: ahead = 5/4 + 1/2. In round 1 the
    # server's coin leaves it out, and theta stays; in round 3 it takes part, and theta is ahead.
    "RandomisedServer, out": Hand(RANDOMISED, **ADMM | {"server": HALF_AHEAD}, server_after=(1.0, 1.75)),
    "RandomisedServer, in": Hand(RANDOMISED, **ADMM | {"server": HALF_AHEAD}, server_after=(1.75, 1.75), round=3),
    # Client 0 takes a gradient step: -3 - 1 + 2 (0 - 1) = -6, w = 0 + 6/2 = 3, y = -1 + (0 - 1)/2 = -3/2, and u, which
    # was -1/2, is 3 - 3/4: delta = 11/4. Client 1 takes a Newton step: (-6 + 7 + 2 (-2 - 1)) / (3 + 2) = -1, so w = -1,
    # and y = 7 + 1/5 (3 + 2) (-2 - 1) = 4; u, which was 3/2, is -1 + 2: delta = -1/2. The mean is 9/8, theta takes 2/4.
    "FedHybrid": Hand(
        FedHybrid(rho=2.0, newton=0.5, beta=0.5, alpha_newton=1.0, beta_newton=0.2),
        server=fedhybrid.Server(v(1.0)),
        states=(fedhybrid.Client(v(0.0), v(-1.0)), fedhybrid.Client(v(-2.0), v(7.0))),
        uploads=((2.75,), (-0.5,)),
        states_after=((3.0, -1.5), (-1.0, 4.0)),
        server_after=(1.5625,),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_one_round_is_as_worked_out_by_hand(name: str) -> None:
    check_hand(BY_HAND[name])


def test_every_algorithm_has_a_round_by_hand() -> None:
    assert {type(hand.algorithm) for hand in [*BY_HAND.values(), *FAMILY.values()]} == set(ALGORITHMS.values())


def test_uploads_are_averaged_with_the_clients_weights() -> None:
    # The steps of FedAvg are 2 and -1; with weights 1 and 3 their mean is (2 - 3)/4 = -1/4.
    play = Play(FedAvg(), on_a_line([1.0, 3.0], [3.0, 0.0]), v(1.0), num_clients=2, weights=[1, 3])
    play.round([0, 1])
    assert float(play.theta) == 0.75


def test_a_newcomer_holds_theta_0_or_the_theta_that_it_downloads() -> None:
    # rho = 2, theta^0 = 0, theta = 1, y = 0: w = (3 + 2)/3 = 5/3, y = 4/3, u = 7/3; u was theta^0 or theta before.
    for newcomer, delta in (("initial", 7 / 3), ("current", 4 / 3)):
        algorithm = FedADMM(rho=2.0, newcomer=newcomer)
        play = Play(algorithm, on_a_line([1.0], [3.0]), v(0.0), num_clients=1)
        play.given(server=fedadmm.Server(v(1.0)), states={}, round=1)
        (visit,) = play.visits([0])
        assert float(visit.upload.delta) == pytest.approx(delta, abs=1e-14)


@pytest.mark.parametrize("algorithm", [FedADMMAuto(), FedDynAuto()], ids=str)
def test_the_stiffness_of_the_first_round_is_what_holds_the_solver_back_beside_rho(algorithm: Algorithm) -> None:
    # Nothing is known, so rho = 1 / (lr x steps). Client 1, f = 3/2 w^2, theta = 1, g = 3.
    # Exact with rho = 1/(1/2) = 2: w = 2/5, 3/(3/5) - 2 = 3, the curvature.
    # Two steps of 1/8 with rho = 4: 1 - 3/8, then 5/8 - (15/8 - 12/8)/8 = 37/64; 3/(27/64) - 4 = 28/9.
    for num_steps, learning_rate, expected in ((None, 0.5, 3.0), (2, 0.125, 28 / 9)):
        task = on_a_line([1.0, 3.0], [3.0, 0.0], num_steps=num_steps, learning_rate=learning_rate)
        play = Play(algorithm, task, v(1.0), num_clients=2)
        (visit,) = play.visits([1])
        assert visit.upload.rho == 1 / (learning_rate * (num_steps or 1))
        assert visit.upload.stiffness == pytest.approx(expected, abs=1e-14)
        play.round([1])
        share = 0.5 if isinstance(algorithm, FedDynAuto) else 1.0  # FedDyn takes half while all are new
        assert play.checkpoint.server.rho == pytest.approx(share * expected, abs=1e-14)
        (visit,) = play.visits([1])
        assert visit.upload.stiffness == 0.0  # measured once
