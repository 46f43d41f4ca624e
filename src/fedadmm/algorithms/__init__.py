"""One paper, one file; this table gives each its name in an experiment."""

from fedadmm.algorithms.adabest import AdaBest
from fedadmm.algorithms.afedpd import AFedPD
from fedadmm.algorithms.averaged import Averaged
from fedadmm.algorithms.fast_fedadmm import FastFedADMM
from fedadmm.algorithms.fedacg import FedACG
from fedadmm.algorithms.fedadmm import FedADMM
from fedadmm.algorithms.fedadmm_auto import FedADMMAuto
from fedadmm.algorithms.fedadmm_released import FedADMMReleased
from fedadmm.algorithms.fedavg import FedAvg
from fedadmm.algorithms.fedavgm import FedAvgM
from fedadmm.algorithms.fedcm import FedCM
from fedadmm.algorithms.feddc import FedDC
from fedadmm.algorithms.feddyn import FedDyn
from fedadmm.algorithms.feddyn_auto import FedDynAuto
from fedadmm.algorithms.fedexp import FedExP
from fedadmm.algorithms.fedhybrid import FedHybrid
from fedadmm.algorithms.fednova import FedNova
from fedadmm.algorithms.fedopt import FedAdam, FedYogi
from fedadmm.algorithms.fedpd import FedPD
from fedadmm.algorithms.fedprox import FedProx
from fedadmm.algorithms.fedsgd import FedSGD
from fedadmm.algorithms.fedvarp import MIFA, FedVARP
from fedadmm.algorithms.local_ghbm import LocalGHBM
from fedadmm.algorithms.randomised_server import RandomisedServer
from fedadmm.algorithms.scaffold import Scaffold
from fedadmm.core.algorithm import AnyAlgorithm

ALGORITHMS: dict[str, type[AnyAlgorithm]] = {
    "fedadmm": FedADMM,
    "fast_fedadmm": FastFedADMM,
    "fedadmm_auto": FedADMMAuto,
    "fedadmm_released": FedADMMReleased,
    "fedsgd": FedSGD,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "feddyn_auto": FedDynAuto,
    "fedpd": FedPD,
    "fednova": FedNova,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedhybrid": FedHybrid,
    "fedacg": FedACG,
    "fedvarp": FedVARP,
    "mifa": MIFA,
    "fedexp": FedExP,
    "adabest": AdaBest,
    "afedpd": AFedPD,
    "fedcm": FedCM,
    "feddc": FedDC,
    "local_ghbm": LocalGHBM,
    "randomised_server": RandomisedServer,
    "averaged": Averaged,
}

__all__ = [
    "ALGORITHMS",
    "MIFA",
    "AFedPD",
    "AdaBest",
    "Averaged",
    "FastFedADMM",
    "FedACG",
    "FedADMM",
    "FedADMMAuto",
    "FedADMMReleased",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDC",
    "FedDyn",
    "FedDynAuto",
    "FedExP",
    "FedHybrid",
    "FedNova",
    "FedPD",
    "FedProx",
    "FedSGD",
    "FedVARP",
    "FedYogi",
    "LocalGHBM",
    "RandomisedServer",
    "Scaffold",
]
