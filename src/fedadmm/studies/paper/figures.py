"""The figures that are not the curves of a table, and two that the paper's source hides.

Where the source does not name E and B, they are 10 and 50, as in Figure 5.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fedadmm.algorithms import FedADMM, FedPD
from fedadmm.core.schedules import Step
from fedadmm.core.settings import Stragglers
from fedadmm.studies.paper.setting import ALGORITHM_1, BASELINES, COMPARED, Distribution, PaperMethod, Setting
from fedadmm.studies.paper.study import PaperRun, Size
from fedadmm.studies.paper.tables import TABLE_4_COLUMNS

SCALES: dict[Size, tuple[int, ...]] = {"paper": (100, 200, 500, 1000), "small": (100, 200, 400)}
# The source does not say which dataset is IID in Figure 3 and which in "the reversed setting" of Figure 4: a guess.
CURVES: dict[str, Distribution] = {"fmnist": "noniid", "cifar10": "iid"}
REVERSED: dict[str, Distribution] = {"fmnist": "iid", "cifar10": "noniid"}


def scaling(distributions: Mapping[str, Distribution], size: Size) -> Iterator[PaperRun]:
    """Return runs for each number of clients, with methods tuned at 100."""
    for dataset, distribution in distributions.items():
        tuned = Setting(dataset, 100, distribution, epochs=10, batch_size=50).at(size)
        for clients in SCALES[size]:
            yield from replace(tuned, clients=clients).runs(COMPARED, tuned_in=tuned)


def ablation(curves: Mapping[str, FedADMM], size: Size, *, num_columns: int = 4) -> Iterator[PaperRun]:
    """Return a run of each form of FedADMM in the settings of Table IV, at the learning rate found for Algorithm 1."""
    methods = {label: PaperMethod(algorithm) for label, algorithm in curves.items()}
    for setting in (column.at(size) for column in TABLE_4_COLUMNS[:num_columns]):
        tuned_as = setting.experiment("fedadmm", ALGORITHM_1)
        yield from (run._replace(tuned_as=tuned_as) for run in setting.runs(methods))


SERVER_STEPS = {
    "fedadmm_eta0.5": FedADMM(rho=0.01, eta=0.5),
    "fedadmm_eta1": FedADMM(rho=0.01, eta=1.0),
    "fedadmm_eta1.5": FedADMM(rho=0.01, eta=1.5),
    "fedadmm_eta1_then_0.5": FedADMM(rho=0.01, eta=Step(before=1.0, after=0.5, at_round=60)),
}
STARTS = {  # from the client's own model (I) or from the server's (II)
    "fedadmm_I_eta0.5": FedADMM(rho=0.01, eta=0.5, start="local"),
    "fedadmm_I_eta1": FedADMM(rho=0.01, eta=1.0, start="local"),
    "fedadmm_II_eta0.5": FedADMM(rho=0.01, eta=0.5, start="global"),
    "fedadmm_II_eta1": FedADMM(rho=0.01, eta=1.0, start="global"),
}
# The source names 0.01 alone, and no round for the change: 0.1 from round 50 on is our choice.
RHOS = {
    "fedadmm_rho0.01": FedADMM(rho=0.01),
    "fedadmm_rho0.1": FedADMM(rho=0.1),
    "fedadmm_rho1": FedADMM(rho=1.0),
    "fedadmm_rho0.01_then_0.1": FedADMM(rho=Step(before=0.01, after=0.1, at_round=50)),
}


def unequal_volumes(size: Size) -> Iterator[PaperRun]:
    """Return a run of each method with 200 clients of very unequal volume."""
    for dataset in ("fmnist", "cifar10"):
        yield from Setting(dataset, 200, "imbalanced", epochs=10, batch_size=50).at(size).runs(COMPARED)


def stragglers(size: Size) -> Iterator[PaperRun]:
    """Return a run of both methods for each share of clients that draw their epochs from 1..10; the others do 10.

    A client is a straggler with the given probability, drawn anew in each round.
    """
    setting = Setting("cifar10", 100, "noniid", epochs=10, batch_size=50).at(size)
    for share in (0.2, 0.4, 0.6, 0.8):
        epochs = Stragglers(share=share, epochs=f"1..{setting.epochs}", others=setting.epochs)
        for run in setting.runs({"fedadmm": ALGORITHM_1, "fedprox": BASELINES["fedprox"]}):
            experiment = run.experiment.replace(
                name=f"{run.experiment.name}-stragglers{share:g}", local=run.experiment.local.replace(epochs=epochs)
            )
            yield run._replace(column=f"{run.column}/stragglers_{share:.0%}", experiment=experiment)


def against_fedpd(size: Size) -> Iterator[PaperRun]:
    """Return a run of FedADMM and two of FedPD, with FedADMM's rho and learning rate: the paper names none.

    `fedpd_partial` is the paper's extension: all clients compute in every round, and a tenth of them communicates.
    `fedpd` is FedPD itself with as many messages: all communicate in a tenth of the rounds.
    """
    setting = Setting("cifar10", 100, "noniid", epochs=10, batch_size=50).at(size)
    partly = {"fedadmm": ALGORITHM_1, "fedpd_partial": PaperMethod(FedPD(rho=0.01))}
    yield from (run._replace(tuned_as=None) for run in setting.runs(partly))
    fedpd = setting.experiment("fedpd", PaperMethod(FedPD(rho=0.01, skip_probability=0.9)))
    yield PaperRun(setting.column, fedpd.replace(participation=1.0))
