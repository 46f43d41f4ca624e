"""Federated learning with FedADMM and its peers.

import fedadmm
data = fedadmm.federate(fedadmm.load("digits"), num_clients=100, partition="shards", seed=0)
result = fedadmm.simulate(fedadmm.FedDyn(), model="mlp", data=data, rounds=60)
"""

from importlib.metadata import version

from fedadmm.algorithms import (
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
    Scaffold,
    SittingOut,
)
from fedadmm.config.experiment import Experiment
from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.participation import Devices
from fedadmm.core.schedules import Constant, Cosine, Power, Step
from fedadmm.data import Dataset, Examples, PartitionedData, federate, load, make_dataset
from fedadmm.data.generated import GeneratedData
from fedadmm.runs.records import Record
from fedadmm.runs.simulate import Result, simulate
from fedadmm.runs.simulation import Simulation
from fedadmm.training.local import LocalTraining

__version__ = version("fedadmm")

__all__ = [
    "Algorithm",
    "Constant",
    "Cosine",
    "Dataset",
    "Devices",
    "Examples",
    "Experiment",
    "FedADMM",
    "FedADMMAuto",
    "FedADMMReleased",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedDyn",
    "FedDynAuto",
    "FedHybrid",
    "FedNova",
    "FedPD",
    "FedProx",
    "FedSGD",
    "FedYogi",
    "GeneratedData",
    "InputError",
    "LocalProblem",
    "LocalTraining",
    "PartitionedData",
    "Power",
    "Record",
    "Result",
    "Scaffold",
    "Simulation",
    "SittingOut",
    "Step",
    "Turnout",
    "Vector",
    "federate",
    "load",
    "make_dataset",
    "simulate",
]
