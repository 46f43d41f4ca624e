"""Figure 10, and Table VI: 200 clients of very unequal volume, E = 10, B = 50."""

from collections.abc import Iterator

import numpy as np

from fedadmm.data.partition import imbalanced
from fedadmm.studies.paper.methods import ALGORITHM_1, BASELINES
from fedadmm.studies.paper.preset import Cell, Preset, Size, WorkedOut
from fedadmm.studies.paper.setting import Setting

PANELS = (
    Setting("fmnist", 200, "imbalanced", epochs=10, batch_size=50),
    Setting("cifar10", 200, "imbalanced", epochs=10, batch_size=50),
)


def cells(size: Size) -> Iterator[Cell]:
    """Return a run of each method."""
    for panel in PANELS:
        yield from panel.at(size).cells({"fedadmm": ALGORITHM_1, **BASELINES})


def statistics() -> WorkedOut:
    """Deal balanced labels out as the figure does, and describe the clients' volumes."""
    rows = []
    for dataset, samples, published in (("FMNIST", 60_000, "171.03"), ("CIFAR-10", 50_000, "142.52")):
        labels = np.arange(samples) % 10
        dealt = imbalanced(labels, num_clients=200, generator=np.random.default_rng(0))
        volumes = np.array([len(own) for own in dealt])
        rows.append(
            (dataset, "200", f"{volumes.sum():,}", f"{volumes.mean():g}", f"{volumes.std(ddof=1):.4f}", published)
        )
    columns = ("dataset", "clients", "samples", "mean", "standard deviation", "the paper's")
    return WorkedOut(columns, tuple(rows))


FIGURE_10 = Preset("figure10", "Figure 10: clients of unequal volume", cells)
TABLE_6 = Preset("table6", "Table VI: statistics of the unequal volumes", table=statistics)
