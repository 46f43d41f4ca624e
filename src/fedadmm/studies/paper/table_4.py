"""Table IV and Figure 7: FedADMM against the number of local epochs E.

The paper names neither the batch size nor the number of clients; its MNIST figures at E = 5 are those of Table III
with 100 clients and B = 200, and CIFAR-10 is taken to be alike.
"""

from collections.abc import Iterator
from dataclasses import replace

from fedadmm.studies.paper.methods import ALGORITHM_1
from fedadmm.studies.paper.preset import Cell, Preset, Size
from fedadmm.studies.paper.setting import Setting

EPOCHS = (1, 5, 10)
PUBLISHED = {
    Setting("mnist", 100, "iid", epochs=5, batch_size=200): ("27", "10", "6"),
    Setting("mnist", 100, "noniid", epochs=5, batch_size=200): ("56", "33", "32"),
    Setting("cifar10", 100, "iid", epochs=5, batch_size=200): ("24", "12", "10"),
    Setting("cifar10", 100, "noniid", epochs=5, batch_size=200): ("30", "14", "11"),
}


def cells(size: Size) -> Iterator[Cell]:
    """Return a run for each E, with the learning rate found at E = 5: the paper keeps it fixed."""
    for setting, published in PUBLISHED.items():
        tuned = setting.at(size)
        for epochs, rounds in zip(EPOCHS, published, strict=True):
            run = replace(tuned, epochs=epochs).experiment(f"fedadmm_E{epochs}", ALGORITHM_1)
            yield Cell(tuned.column, run, tuned.experiment("fedadmm", ALGORITHM_1), rounds)


TABLE_4 = Preset("table4", "Table IV: rounds to the target, FedADMM against local epochs", cells)
FIGURE_7 = Preset("figure7", "Figure 7: the curves of Table IV", cells)
