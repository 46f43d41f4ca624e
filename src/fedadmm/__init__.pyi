"""The names of the package, one a line. Type checkers read them, and so does __init__.py, which imports a name late."""

from fedadmm.algorithms import Averaged as Averaged
from fedadmm.algorithms import FastFedADMM as FastFedADMM
from fedadmm.algorithms import FedACG as FedACG
from fedadmm.algorithms import FedAdam as FedAdam
from fedadmm.algorithms import FedADMM as FedADMM
from fedadmm.algorithms import FedADMMAuto as FedADMMAuto
from fedadmm.algorithms import FedADMMReleased as FedADMMReleased
from fedadmm.algorithms import FedAvg as FedAvg
from fedadmm.algorithms import FedAvgM as FedAvgM
from fedadmm.algorithms import FedDyn as FedDyn
from fedadmm.algorithms import FedDynAuto as FedDynAuto
from fedadmm.algorithms import FedHybrid as FedHybrid
from fedadmm.algorithms import FedNova as FedNova
from fedadmm.algorithms import FedPD as FedPD
from fedadmm.algorithms import FedProx as FedProx
from fedadmm.algorithms import FedSGD as FedSGD
from fedadmm.algorithms import FedYogi as FedYogi
from fedadmm.algorithms import RandomisedServer as RandomisedServer
from fedadmm.algorithms import Scaffold as Scaffold
from fedadmm.config.experiment import Experiment as Experiment
from fedadmm.core.algorithm import Algorithm as Algorithm
from fedadmm.core.algorithm import LocalProblem as LocalProblem
from fedadmm.core.algorithm import Turnout as Turnout
from fedadmm.core.algorithm import Vector as Vector
from fedadmm.core.errors import InputError as InputError
from fedadmm.core.participation import Devices as Devices
from fedadmm.core.schedules import Constant as Constant
from fedadmm.core.schedules import Cosine as Cosine
from fedadmm.core.schedules import Power as Power
from fedadmm.core.schedules import Step as Step
from fedadmm.data import Dataset as Dataset
from fedadmm.data import Examples as Examples
from fedadmm.data import PartitionedData as PartitionedData
from fedadmm.data import federate as federate
from fedadmm.data import load as load
from fedadmm.data import make_dataset as make_dataset
from fedadmm.data.generated import GeneratedData as GeneratedData
from fedadmm.runs.records import Record as Record
from fedadmm.runs.runner import Result as Result
from fedadmm.runs.runner import simulate as simulate
from fedadmm.runs.simulation import Simulation as Simulation
from fedadmm.training.local import LocalTraining as LocalTraining

__version__: str
