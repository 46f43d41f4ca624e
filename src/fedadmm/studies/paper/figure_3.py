"""Figures 3 and 4: methods tuned at 100 clients, in federations of up to 1,000.

Figure 3 has the curves and Figure 4 the rounds to the target "for the reversed setting"; the source does not say
which dataset is IID in which, so this is a guess. E and B are not named either: 10 and 50, as in Figure 5.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from fedadmm.studies.paper.methods import ALGORITHM_1, BASELINES
from fedadmm.studies.paper.preset import Cell, Preset, Size
from fedadmm.studies.paper.setting import Distribution, Setting

CLIENTS: dict[Size, tuple[int, ...]] = {"paper": (100, 200, 500, 1000), "small": (100, 200, 400)}


def cells(distributions: dict[str, Distribution], size: Size) -> Iterator[Cell]:
    """Return the runs for each number of clients."""
    for dataset, distribution in distributions.items():
        tuned = Setting(dataset, 100, distribution, epochs=10, batch_size=50).at(size)
        for clients in CLIENTS[size]:
            scaled = replace(tuned, clients=clients)
            yield from scaled.cells({"fedadmm": ALGORITHM_1, **BASELINES}, tuned_in=tuned)


FIGURE_3 = Preset(
    "figure3", "Figure 3: scaling with the number of clients", partial(cells, {"fmnist": "noniid", "cifar10": "iid"})
)
FIGURE_4 = Preset(
    "figure4",
    "Figure 4: rounds to the target against the number of clients",
    partial(cells, {"fmnist": "iid", "cifar10": "noniid"}),
)
