"""Figure 6: FedADMM under several server steps eta, and a change of eta at round 60; 100 clients."""

from collections.abc import Iterator

from fedadmm.algorithms import FedADMM
from fedadmm.core.schedules import Step
from fedadmm.studies.paper.preset import Cell, Preset, Size
from fedadmm.studies.paper.setting import Setting

PANELS = (
    Setting("mnist", 100, "iid", epochs=5, batch_size=200),
    Setting("mnist", 100, "noniid", epochs=5, batch_size=200),
    Setting("cifar10", 100, "iid", epochs=5, batch_size=200),
    Setting("cifar10", 100, "noniid", epochs=5, batch_size=200),
)
CURVES = {
    "fedadmm_eta0.5": FedADMM(rho=0.01, eta=0.5),
    "fedadmm_eta1": FedADMM(rho=0.01, eta=1.0),
    "fedadmm_eta1.5": FedADMM(rho=0.01, eta=1.5),
    "fedadmm_eta1_then_0.5": FedADMM(rho=0.01, eta=Step(before=1.0, after=0.5, at_round=60)),
}


def cells(size: Size) -> Iterator[Cell]:
    """Return a run for each server step."""
    for panel in PANELS:
        yield from panel.at(size).ablation(CURVES)


FIGURE_6 = Preset("figure6", "Figure 6: FedADMM under several server steps", cells)
