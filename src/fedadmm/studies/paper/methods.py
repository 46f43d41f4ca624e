"""The methods that are compared, with the constants that the paper gives them."""

from typing import Any, NamedTuple

from fedadmm.algorithms import FedADMM, FedADMMReleased, FedAvg, FedDyn, FedProx, FedSGD, Scaffold
from fedadmm.core.algorithm import Algorithm


class Method(NamedTuple):
    """An algorithm, and whether its clients draw their epochs from 1..E or do exactly E."""

    algorithm: Algorithm[Any, Any, Any]
    epochs: str = "1..E"
    rounds: int = 1  # times as many as the others get


ALGORITHM_1 = Method(FedADMM(rho=0.01, eta=1.0))

# FedADMM's first message is twice FedAvg's, so FedAvg with a server step of 2 stands beside it.
BASELINES = {
    "fedavg": Method(FedAvg(), "E"),
    "fedavg_2": Method(FedAvg(eta=2.0), "E"),
    "fedprox": Method(FedProx(rho=0.1)),
    "scaffold": Method(Scaffold(), "E"),
}
METHODS = {
    "fedadmm": ALGORITHM_1,
    "fedadmm_participation": Method(FedADMM(rho=0.01, eta="participation", newcomer="initial")),
    "fedadmm_seen": Method(FedADMM(rho=0.01, eta="seen")),
    "fedadmm_released": Method(FedADMMReleased()),
    "feddyn": Method(FedDyn(rho=0.1, over="seen")),
    **BASELINES,
    "fedsgd": Method(FedSGD(), rounds=6),  # the paper gives it up to 600 rounds
}
