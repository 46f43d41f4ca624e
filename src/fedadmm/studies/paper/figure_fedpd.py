"""A figure that the source hides: FedADMM against FedPD, over rounds and over gradient evaluations.

CIFAR-10, not IID, C = 0.1. The paper names neither E, B nor a learning rate here: E and B are those of the other hidden
figure, and both methods have FedADMM's rho and the same learning rate. `fedpd_partial` is the paper's extension: all
clients compute in every round, and a tenth of them communicates. `fedpd` is FedPD itself with as many messages: all
communicate in a tenth of the rounds.
"""

from fedadmm.algorithms import FedPD
from fedadmm.studies.paper.methods import ALGORITHM_1, Method
from fedadmm.studies.paper.preset import Cell, Preset, Size
from fedadmm.studies.paper.setting import Setting

METHODS = {
    "fedadmm": ALGORITHM_1,
    "fedpd_partial": Method(FedPD(rho=0.01)),
    "fedpd": Method(FedPD(rho=0.01, silence=0.9)),
}


def cells(size: Size) -> list[Cell]:
    """Return a run of each method."""
    setting = Setting("cifar10", 100, "noniid", epochs=10, batch_size=50).at(size)
    return [_cell(cell) for cell in setting.cells(METHODS)]


def _cell(cell: Cell) -> Cell:
    experiment = cell.experiment
    if experiment.label == "fedpd":
        experiment = experiment.replace(participation=1.0)
    return cell._replace(experiment=experiment, tuned_as=None)


FIGURE_FEDPD = Preset("figure_fedpd", "Unprinted figure: FedADMM against FedPD", cells)
