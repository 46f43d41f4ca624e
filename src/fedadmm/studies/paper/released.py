"""The runs of a study as the paper's released code would do them, which is not Algorithm 1.

Its networks end in a softmax and have no activation after the convolutions, its local SGD has momentum 0.5, its
normalisation is its own, and its FedADMM is `fedadmm_released`. It has no baselines: they get the same networks.
"""

from collections.abc import Iterable
from dataclasses import replace

from fedadmm.algorithms import FedADMM, FedADMMReleased
from fedadmm.config.experiment import Experiment
from fedadmm.core.optional import PlainSGDOnly, trait
from fedadmm.studies.paper.study import PaperRun

NETWORKS = {"cnn1": "cnn1_released", "cnn2": "cnn2_released"}
MOMENTUM = 0.5


def as_released(runs: Iterable[PaperRun]) -> list[PaperRun]:
    """Return runs as the released code would run them, without those for which it has no choice."""
    return [released for run in runs if (released := _as_released(run)) is not None]


def _as_released(run: PaperRun) -> PaperRun | None:
    algorithm = run.experiment.algorithm
    if isinstance(algorithm, FedADMM) and (isinstance(algorithm.eta, str) or algorithm.start == "global"):
        return None
    tuned_as = None if run.tuned_as is None else _released(run.tuned_as)
    return run._replace(experiment=_released(run.experiment), tuned_as=tuned_as)


def _released(experiment: Experiment) -> Experiment:
    algorithm = experiment.algorithm
    if isinstance(algorithm, FedADMM):
        assert not isinstance(algorithm.eta, str)
        released = FedADMMReleased(rho=algorithm.rho)  # its eta is 1, and half of that from round 60 on
        algorithm = released if algorithm.eta == 1.0 else replace(released, eta=algorithm.eta)
    local = experiment.local
    if not trait(algorithm, PlainSGDOnly):
        local = local.replace(momentum=MOMENTUM)
    name = experiment.model.name
    return experiment.replace(
        name=f"{experiment.name}-released",
        algorithm=algorithm,
        model=experiment.model.replace(name=NETWORKS.get(name, name)),
        data=experiment.data.replace(normalisation="released"),
        local=local,
    )
