"""One paper, one file; this table gives each its name in an experiment."""

from fedadmm.algorithms.adabest import AdaBest as AdaBest
from fedadmm.algorithms.afedpd import AFedPD as AFedPD
from fedadmm.algorithms.averaged import Averaged as Averaged
from fedadmm.algorithms.fast_fedadmm import FastFedADMM as FastFedADMM
from fedadmm.algorithms.fedacg import FedACG as FedACG
from fedadmm.algorithms.fedadmm import FedADMM as FedADMM
from fedadmm.algorithms.fedadmm_auto import FedADMMAuto as FedADMMAuto
from fedadmm.algorithms.fedadmm_released import FedADMMReleased as FedADMMReleased
from fedadmm.algorithms.fedavg import FedAvg as FedAvg
from fedadmm.algorithms.fedavgm import FedAvgM as FedAvgM
from fedadmm.algorithms.fedcm import FedCM as FedCM
from fedadmm.algorithms.feddc import FedDC as FedDC
from fedadmm.algorithms.feddyn import FedDyn as FedDyn
from fedadmm.algorithms.feddyn_auto import FedDynAuto as FedDynAuto
from fedadmm.algorithms.fedexp import FedExP as FedExP
from fedadmm.algorithms.fedhybrid import FedHybrid as FedHybrid
from fedadmm.algorithms.fednova import FedNova as FedNova
from fedadmm.algorithms.fedopt import FedAdam as FedAdam
from fedadmm.algorithms.fedopt import FedYogi as FedYogi
from fedadmm.algorithms.fedpd import FedPD as FedPD
from fedadmm.algorithms.fedprox import FedProx as FedProx
from fedadmm.algorithms.fedsgd import FedSGD as FedSGD
from fedadmm.algorithms.fedvarp import MIFA as MIFA
from fedadmm.algorithms.fedvarp import FedVARP as FedVARP
from fedadmm.algorithms.local_ghbm import LocalGHBM as LocalGHBM
from fedadmm.algorithms.look_ahead import LookAhead as LookAhead
from fedadmm.algorithms.randomised_server import RandomisedServer as RandomisedServer
from fedadmm.algorithms.scaffold import Scaffold as Scaffold
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
    "look_ahead": LookAhead,
}
