"""Law 6, for methods with momentum, or with a memory of absent clients; tests/hand.py says of which clients.

The exact steps of FedAvg are 2 and -1. Two steps of 1/2 are lr K = 1 together.
"""

from typing import Any

import pytest
import torch

from fedadmm.algorithms import (
    MIFA,
    AdaBest,
    AFedPD,
    FedACG,
    FedCM,
    FedDC,
    FedExP,
    FedProx,
    FedVARP,
    LocalGHBM,
    LookAhead,
    adabest,
    afedpd,
    fedacg,
    fedavg,
    fedcm,
    feddc,
    fedexp,
    fedvarp,
    local_ghbm,
)
from fedadmm.core.algorithm import NoState
from hand import Hand, check_hand, v

NO_STATE: dict[str, Any] = {"states": (NoState(), NoState()), "states_after": ((), ())}
# g = (1 - 3) / lr = -4 and (1 - 0) / lr = 2 with lr = 1/2; it was -2 and 1. The mean change is -1/2.
LAST_STEPS: dict[str, Any] = {
    "states": (fedvarp.Client(v(-2.0)), fedvarp.Client(v(1.0))),
    "uploads": ((-2.0, 0.5), (1.0, 0.5)),
    "states_after": ((-4.0,), (2.0,)),
}
# |step|^2 = 4 and 1, with a mean of 5/2; the mean step is 1/2.
SPREAD: dict[str, Any] = {**NO_STATE, "server": fedexp.Server(v(1.0), v(-4.0)), "uploads": ((2.0, 4.0), (-1.0, 1.0))}

FAMILY = {
    # m = 1/2 - (-1/2) = 1, so z = 1/2 + 1/2 (1) = 1, where FedProx has the same steps; z and their mean are theta.
    "FedACG": Hand(
        FedACG(lam=0.5, beta=2.0),
        **NO_STATE | {"server": fedacg.Server(v(0.5), v(-0.5))},
        uploads=((2 / 3,), (-0.6,)),
        server_after=(1 + 1 / 30, 0.5),
    ),
    # The momentum is 1/2 (1 - 0), so both start at 3/2, with the centre 1. One step of 1/2: client 0's gradient is
    # (3/2 - 3) + 2 (3/2 - 1) = -1/2, so w = 7/4; client 1's is 3 (3/2) + 2 (1/2) = 11/2, so w = -5/4. theta = 1 - 3/4.
    "LookAhead": Hand(
        LookAhead(look_ahead=0.5, inner=FedProx(rho=2.0)),
        **NO_STATE | {"server": LookAhead().init_server(v(1.0))._replace(theta_before=v(0.0))},
        uploads=((0.75,), (-2.25,)),
        server_after=(0.25, 1.0),
        num_steps=1,
    ),
    # v = -1/2 + 3, theta = 1 - 2 (1/2) (5/2), g_mean = 3 + 2/4 (-1/2).
    "FedVARP": Hand(
        FedVARP(eta=2.0), server=fedvarp.VARPServer(v(1.0), v(3.0)), **LAST_STEPS, server_after=(-1.5, 2.75)
    ),
    # g_sum = 3 + 2 (-1/2), over three clients seen; theta = 1 - (1/2) (2/3).
    "MIFA": Hand(MIFA(), server=fedvarp.MIFAServer(v(1.0), v(3.0)), **LAST_STEPS, server_after=(2 / 3, 2.0)),
    # eta = (5/2) / (2 (1/4 + 1/4)) = 5/2, theta = 1 + 5/4.
    "FedExP": Hand(FedExP(epsilon=0.25), **SPREAD, server_after=(2.25, 1.0)),
    # eta = max(1, (5/2) / (2 (1/4 + 10))).
    "FedExP, at least 1": Hand(FedExP(epsilon=10.0), **SPREAD, server_after=(1.5, 1.0)),
    # h = 1/2 (-1/2 - 1/2), so z = 1/2 + 1/2. w = 3 + h_0 = 4 and h_1 / 3 = -1, with steps 3 and -2, so theta = z + 1/2.
    # h_0 = 1 + 1/2 (1 - 4), h_1 = -3 + 1/2 (1 + 1): both were there in the round before.
    "AdaBest": Hand(
        AdaBest(beta=0.5, mu=0.5),
        server=fedacg.Server(v(0.5), v(-0.5)),
        states=(adabest.Client(v(1.0)), adabest.Client(v(-3.0))),
        uploads=((3.0,), (-2.0,)),
        states_after=((-0.5,), (-2.0,)),
        server_after=(1.5, 0.5),
    ),
    # z = 1/2 + 1/2 and centre = 1/2 + 1/2. With 2 mu = -1 and 7: w = 2 and -1, as FedADMM's. The mean step is -1/2.
    "AFedPD": Hand(
        AFedPD(rho=2.0),
        server=afedpd.Server(v(0.5), v(0.0), v(0.5)),
        states=(afedpd.Client(v(-0.5)), afedpd.Client(v(3.5))),
        uploads=((1.0,), (-2.0,)),
        states_after=((0.5,), (1.5,)),
        server_after=(0.5, 0.5, 0.25),
    ),
    # m = -1, so (1 - alpha) m = -1/2. Client 0: 1 - (-2 - 1/2)/2 = 9/4; 9/4 - (-3/4 - 1/2)/2 = 23/8.
    # Client 1: 1 - (3 - 1/2)/2 = -1/4; -1/4 - (-3/4 - 1/2)/2 = 3/8. The mean step is (15/8 - 5/8)/2.
    "FedCM": Hand(
        FedCM(alpha=0.5, eta=2.0),
        **NO_STATE,
        server=fedcm.Server(v(1.0), v(1.0)),
        uploads=((1.875,), (-0.625,)),
        server_after=(2.25, 0.625),
        num_steps=2,
    ),
    # Two steps of 1/4. Client 0, c_0 = 1, h_0 = 1/2: -2 - 1/2 + 1/2 = -2, w = 3/2; -3/2 - 1/2 + 1 = -1, w = 7/4.
    # c_0 = 1 - 1/2 - (3/4)/(1/2) = -1. Client 1, c_1 = 0, h_1 = 1: 3 + 1/2 + 1 = 9/2, w = -1/8, which is its minimum.
    # c_1 = 0 - 1/2 + (9/8)/(1/2) = 7/4. The mean step is -3/16, so h = -1/2 - 3/32 and theta = 1 - 3/16 + h.
    "FedDC": Hand(
        FedDC(alpha=1.0),
        server=feddc.Server(v(1.0), v(0.5), v(-0.5)),
        states=(feddc.Client(v(0.5), v(1.0)), feddc.Client(v(1.0), v(0.0))),
        uploads=((0.75, -2.0), (-1.125, 1.75)),
        states_after=((1.25, -1.0), (-0.125, 1.75)),
        server_after=(0.21875, 0.4375, -0.59375),
        num_steps=2,
        learning_rate=0.25,
    ),
    # m = 1 - 0 and 1 - 2 in one round, half of it beside the gradients: -1/2 as FedCM's client 0, and 1/2 as
    # SCAFFOLD's client 1: 1 - (3 + 1/2)/2 = -3/4; -3/4 - (-9/4 + 1/2)/2 = 1/8.
    "LocalGHBM": Hand(
        LocalGHBM(beta=0.5),
        server=fedavg.Server(v(1.0)),
        states=(local_ghbm.Client(v(0.0)), local_ghbm.Client(v(2.0))),
        uploads=((1.875,), (-0.875,)),
        states_after=((1.0,), (1.0,)),
        server_after=(1.5,),
        num_steps=2,
    ),
}


@pytest.mark.parametrize("name", FAMILY)
def test_one_round_is_as_worked_out_by_hand(name: str) -> None:
    check_hand(FAMILY[name])


def test_fedexps_model_is_the_mean_of_the_last_two() -> None:
    server = FedExP().init_server(torch.ones(2))._replace(theta=torch.full((2,), 4.0))
    assert FedExP().model(server).tolist() == [2.5, 2.5]


def test_a_model_ahead_of_the_mean_is_not_the_one_that_is_reported() -> None:
    for algorithm in (FedACG(), AdaBest(), AFedPD()):
        server = algorithm.init_server(torch.ones(2))._replace(theta=torch.full((2,), 4.0))
        assert algorithm.model(server).equal(server.theta)
        assert (algorithm.download(server).theta > server.theta).all()
