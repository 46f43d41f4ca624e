"""Figure 5, and the unprinted table behind it: FedADMM with fixed constants against tuned baselines."""

from collections.abc import Iterator

from fedadmm.studies.paper.methods import ALGORITHM_1, BASELINES
from fedadmm.studies.paper.preset import Cell, Preset, Size
from fedadmm.studies.paper.setting import Setting

PUBLISHED = {
    Setting("fmnist", 200, "iid", epochs=10, batch_size=50): (2, 4, 7, 5),
    Setting("fmnist", 200, "noniid", epochs=10, batch_size=50): (13, 33, 46, 56),
    Setting("cifar10", 200, "iid", epochs=10, batch_size=50): (3, 10, 14, 14),
    Setting("cifar10", 200, "noniid", epochs=10, batch_size=50): (11, 26, 26, 24),
}
ROWS = ("fedadmm", "fedavg", "fedprox", "scaffold")


def cells(size: Size) -> Iterator[Cell]:
    """Return the runs; FedADMM's learning rate is 0.1 throughout, the others' is tuned."""
    for setting, numbers in PUBLISHED.items():
        published = dict(zip(ROWS, map(str, numbers), strict=True))
        for cell in setting.at(size).cells({"fedadmm": ALGORITHM_1, **BASELINES}, published=published):
            yield cell._replace(tuned_as=None) if cell.experiment.label == "fedadmm" else cell


FIGURE_5 = Preset("figure5", "Figure 5: FedADMM with fixed constants against tuned baselines", cells)
TABLE_ADAPTABILITY = Preset("table_adaptability", "Unprinted table: the rounds to the target of Figure 5", cells)
