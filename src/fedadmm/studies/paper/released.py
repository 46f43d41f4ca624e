"""The runs of a preset as the paper's released code would do them, which is not Algorithm 1.

Its networks end in a softmax and have no activation after the convolutions, its local SGD has momentum 0.5, its
normalisation is its own, and its FedADMM is `fedadmm_released`. It has no baselines: they get the same networks.
"""

from collections.abc import Iterable

from fedadmm.algorithms import FedADMM, FedADMMReleased
from fedadmm.config.experiment import Experiment
from fedadmm.studies.paper.preset import Cell

NETWORKS = {"cnn1": "cnn1_released", "cnn2": "cnn2_released"}
MOMENTUM = 0.5


def as_released(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells as the released code would run them, without those for which it has no choice."""
    return [released for cell in cells if (released := _as_released(cell)) is not None]


def _as_released(cell: Cell) -> Cell | None:
    algorithm = cell.experiment.algorithm
    if isinstance(algorithm, FedADMM) and (isinstance(algorithm.eta, str) or algorithm.start == "global"):
        return None
    tuned_as = None if cell.tuned_as is None else _released(cell.tuned_as)
    return cell._replace(experiment=_released(cell.experiment), tuned_as=tuned_as)


def _released(experiment: Experiment) -> Experiment:
    algorithm = experiment.algorithm
    if isinstance(algorithm, FedADMM):
        as_printed = algorithm.eta == 1.0  # then the released code halves it at round 60
        assert not isinstance(algorithm.eta, str)
        algorithm = (
            FedADMMReleased(rho=algorithm.rho) if as_printed else FedADMMReleased(rho=algorithm.rho, eta=algorithm.eta)
        )
    local = experiment.local
    if not algorithm.plain_sgd_only:
        local = local.replace(momentum=MOMENTUM)
    name = experiment.model.name
    return experiment.replace(
        name=f"{experiment.name}-released",
        algorithm=algorithm,
        model=experiment.model.replace(name=NETWORKS.get(name, name)),
        data=experiment.data.replace(normalisation="released"),
        local=local,
    )
