"""Every algorithm of the table as it comes, and every choice that one offers."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from fedadmm.algorithms import (
    ALGORITHMS,
    AdaBest,
    AFedPD,
    Averaged,
    FastFedADMM,
    FedACG,
    FedAdam,
    FedADMM,
    FedADMMAuto,
    FedADMMReleased,
    FedAvg,
    FedCM,
    FedDC,
    FedDyn,
    FedDynAuto,
    FedExP,
    FedHybrid,
    FedPD,
    FedProx,
    FedVARP,
    FedYogi,
    LocalGHBM,
    LookAhead,
    Scaffold,
)
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.optional import SecondOrder, trait
from fedadmm.core.schedules import Constant, Cosine, Step

# A schedule that has changed by round 2, so that later rounds meet states made with another value.
RISING = Step(before=0.5, after=0.8, at_round=2)
FALLING = Cosine(start=1.0, end=0.5, length=4)

METHODS: dict[str, AnyAlgorithm] = {
    **{name: algorithm() for name, algorithm in ALGORITHMS.items()},
    "fast_fedadmm, rho 0.5": FastFedADMM(rho=0.5, look_ahead=0.5, average=0.0),
    "averaged, feddyn": Averaged(decay="auto", inner=FedDyn()),
    "averaged, fast_fedadmm": Averaged(inner=FastFedADMM()),
    "look_ahead, fedprox": LookAhead(look_ahead=0.5, inner=FedProx(rho=0.5)),
    "fedadmm, participation": FedADMM(rho=0.5, eta="participation", newcomer="initial"),
    "fedadmm, participation, global": FedADMM(rho=0.5, eta="participation", newcomer="initial", start="global"),
    "fedadmm, seen": FedADMM(rho=0.5, eta="seen"),
    "fedadmm, seen, global": FedADMM(rho=0.5, eta="seen", start="global"),
    "fedadmm, rho rising": FedADMM(rho=RISING),
    "fedadmm, initial, rho rising": FedADMM(rho=RISING, eta=0.5, newcomer="initial"),
    "fedadmm, global": FedADMM(rho=0.5, start="global"),
    "fedadmm, initial": FedADMM(rho=0.5, eta=0.5, newcomer="initial"),
    "fedadmm, eta falling": FedADMM(rho=Constant(0.5), eta=FALLING),
    "fedadmm_released, rising": FedADMMReleased(rho=RISING, eta=FALLING),
    "fedavg, eta 2": FedAvg(eta=2.0),
    "fedavg, eta falling": FedAvg(eta=FALLING),
    "fedprox, no penalty": FedProx(rho=0.0),
    "fedprox, rising": FedProx(rho=RISING),
    "fedacg, rising": FedACG(lam=0.5, beta=RISING),
    "fedvarp, eta falling": FedVARP(eta=FALLING),
    "fedexp, rising": FedExP(epsilon=RISING),
    "adabest, mu 0.5": AdaBest(beta=0.5, mu=0.5),
    "afedpd, rho 0.5": AFedPD(rho=0.5),
    "fedcm, eta falling": FedCM(alpha=0.5, eta=FALLING),
    "feddc, rising": FedDC(alpha=RISING),
    "local_ghbm, rising": LocalGHBM(beta=RISING),
    "scaffold, eta 0.5": Scaffold(eta=0.5),
    "feddyn, seen": FedDyn(over="seen"),
    "feddyn, rising": FedDyn(rho=RISING),
    "feddyn, seen, rising": FedDyn(rho=RISING, over="seen"),
    "fedpd, silent, rising": FedPD(rho=RISING, skip_probability=0.5),
    "fedadam, with scaffold": FedAdam(eta=0.1, tau=0.1, inner=Scaffold()),
    "fedyogi, with fedadmm_released": FedYogi(eta=0.1, inner=FedADMMReleased(rho=RISING)),
    "fedadmm_auto, local": FedADMMAuto(start="local"),
    "fedadmm_auto, eta seen": FedADMMAuto(eta="seen"),
    "fedadmm_auto, rho rising": FedADMMAuto(rho=RISING),
    "fedadmm_auto, eta seen, rho rising": FedADMMAuto(rho=RISING, eta="seen"),
    "feddyn_auto, all": FedDynAuto(over="all"),
    "fedhybrid, gradient": FedHybrid(rho=0.7, newton=0.0, beta=FALLING),
    "fedhybrid, newton": FedHybrid(rho=0.7, newton=1.0, beta_newton=FALLING),
}
# A network has no use for Newton steps, and a stack of clients no Hessians.
ON_NETWORKS = {name: method for name, method in METHODS.items() if not trait(method, SecondOrder)}
PLAIN = ("fast_fedadmm", "fedadmm", "scaffold", "fedpd")


def mostly_slow(values: Iterable[Any], *, plain: Collection[Any] = PLAIN) -> list[Any]:
    """Return the parameters of a test that takes a second each, such as names: slow, but for some of every kind."""
    return [value if value in plain else pytest.param(value, marks=pytest.mark.slow) for value in values]
