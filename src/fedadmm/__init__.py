"""Federated learning with FedADMM and its peers.

import fedadmm
data = fedadmm.federate(fedadmm.load("digits"), num_clients=100, partition="shards", seed=0)
result = fedadmm.simulate(fedadmm.FedDyn(), model="mlp", data=data, rounds=60)
"""

import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fedadmm.core.renamed import NAMES, MovedModules

if TYPE_CHECKING:  # what mypy and editors read
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
        RandomisedServer,
        Scaffold,
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
    "RandomisedServer",
    "Record",
    "Result",
    "Scaffold",
    "Simulation",
    "Step",
    "Turnout",
    "Vector",
    "federate",
    "load",
    "make_dataset",
    "simulate",
]

# The module of each name, which is imported when the name is asked for: torch takes a second.
_MODULES = {
    "algorithms": "FedADMM FedADMMAuto FedADMMReleased FedAdam FedAvg FedAvgM FedDyn FedDynAuto FedHybrid "
    "FedNova FedPD FedProx FedSGD FedYogi Scaffold RandomisedServer",
    "config.experiment": "Experiment",
    "core.algorithm": "Algorithm LocalProblem Turnout Vector",
    "core.errors": "InputError",
    "core.participation": "Devices",
    "core.schedules": "Constant Cosine Power Step",
    "data": "Dataset Examples PartitionedData federate load make_dataset",
    "data.generated": "GeneratedData",
    "runs.records": "Record",
    "runs.simulate": "Result simulate",
    "runs.simulation": "Simulation",
    "training.local": "LocalTraining",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

sys.meta_path.append(MovedModules())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("fedadmm")
    if name in _MODULE_OF:
        value = globals()[name] = getattr(import_module(f"fedadmm.{_MODULE_OF[name]}"), name)
        return value
    if name not in NAMES:
        raise AttributeError(f"module 'fedadmm' has no attribute {name!r}")
    sentence = f"fedadmm.{name} is called fedadmm.{NAMES[name]} now; change the name"
    # Python replaces the sentence of an AttributeError in `from fedadmm import ...` by its own.
    imported = sys._getframe(1).f_code.co_name == "_handle_fromlist"
    raise ImportError(sentence) if imported else AttributeError(sentence)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
