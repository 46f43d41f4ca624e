"""A figure that the source hides: some of the clients draw their epochs from 1..10, the others do 10.

CIFAR-10, not IID, 100 clients; B is not named: 50, as in Figure 5. A client is a straggler with the given
probability, drawn anew in each round.
"""

from collections.abc import Iterator

from fedadmm.studies.paper.methods import ALGORITHM_1, BASELINES
from fedadmm.studies.paper.preset import Cell, Preset, Size
from fedadmm.studies.paper.setting import Setting
from fedadmm.training.epochs import Stragglers

METHODS = {"fedadmm": ALGORITHM_1, "fedprox": BASELINES["fedprox"]}


def cells(size: Size) -> Iterator[Cell]:
    """Return a run of both methods for each share of stragglers."""
    setting = Setting("cifar10", 100, "noniid", epochs=10, batch_size=50).at(size)
    for share in (0.2, 0.4, 0.6, 0.8):
        epochs = Stragglers(share=share, epochs=f"1..{setting.epochs}", others=setting.epochs)
        for cell in setting.cells(METHODS):
            run = cell.experiment
            local = run.local.replace(epochs=epochs)
            name = f"{run.name}-stragglers{share:g}"
            yield cell._replace(
                column=f"{cell.column}/stragglers_{share:.0%}", experiment=run.replace(name=name, local=local)
            )


FIGURE_STRAGGLERS = Preset("figure_stragglers", "Unprinted figure: a share of the clients is slow", cells)
