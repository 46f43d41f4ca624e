"""Figure 8: local training from the client's own model (I) or from the server's (II), over server steps."""

from collections.abc import Iterator

from fedadmm.algorithms import FedADMM
from fedadmm.studies.paper.figure_6 import PANELS
from fedadmm.studies.paper.preset import Cell, Preset, Size

CURVES = {
    "fedadmm_I_eta0.5": FedADMM(rho=0.01, eta=0.5, start="local"),
    "fedadmm_I_eta1": FedADMM(rho=0.01, eta=1.0, start="local"),
    "fedadmm_II_eta0.5": FedADMM(rho=0.01, eta=0.5, start="global"),
    "fedadmm_II_eta1": FedADMM(rho=0.01, eta=1.0, start="global"),
}


def cells(size: Size) -> Iterator[Cell]:
    """Return a run for each start and server step."""
    for panel in PANELS:
        yield from panel.at(size).ablation(CURVES)


FIGURE_8 = Preset("figure8", "Figure 8: local training from w_i (I) or from theta (II)", cells)
