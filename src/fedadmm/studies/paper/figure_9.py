"""Figure 9: FedADMM with a constant rho, and with a rho that grows during the run.

The source names 0.01 alone, and no round for the change: 0.1 from round 50 on is our choice.
"""

from collections.abc import Iterator

from fedadmm.algorithms import FedADMM
from fedadmm.core.schedules import Step
from fedadmm.studies.paper.figure_6 import PANELS
from fedadmm.studies.paper.preset import Cell, Preset, Size

CURVES = {
    "fedadmm_rho0.01": FedADMM(rho=0.01),
    "fedadmm_rho0.1": FedADMM(rho=0.1),
    "fedadmm_rho1": FedADMM(rho=1.0),
    "fedadmm_rho0.01_then_0.1": FedADMM(rho=Step(before=0.01, after=0.1, at_round=50)),
}


def cells(size: Size) -> Iterator[Cell]:
    """Return a run for each rho, in the two panels of MNIST."""
    for panel in PANELS[:2]:
        yield from panel.at(size).ablation(CURVES)


FIGURE_9 = Preset("figure9", "Figure 9: FedADMM under several rho", cells)
