"""Beside the paper: rho and eta that choose themselves against every constant of a grid, in rounds to a target.

The rules were made on quadratics and on softmax regression, and frozen; an mlp on digits and on MNIST judges them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fedadmm.algorithms import FedADMM, FedADMMAuto, FedDynAuto
from fedadmm.config.experiment import DataSettings, Experiment, ModelSettings, StateSettings
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.studies.paper.study import PaperRun, Size, Study
from fedadmm.training.local import LocalTraining

RHOS = (0.001, 0.01, 0.1, 1.0)
ETAS: Mapping[str, Any] = {
    "0.5": {"eta": 0.5},
    "1": {"eta": 1.0},
    "participation": {"eta": "participation", "newcomer": "initial"},
    "seen": {"eta": "seen"},
}
CONSTANTS: dict[str, AnyAlgorithm] = {
    f"fedadmm-{rho:g}-{name}": FedADMM(rho=rho, **how) for name, how in ETAS.items() for rho in RHOS
}
AUTOS: dict[str, AnyAlgorithm] = {
    "fedadmm_auto": FedADMMAuto(),
    "feddyn_auto": FedDynAuto(),
    "feddyn_auto_all": FedDynAuto(over="all"),
}


# A tenth of the default's 100 clients in a round.
BASE = Experiment(stop_at_target=True, participation=0.1, engine="stacked", state=StateSettings(store="memory"))
DIGITS, MNIST = LocalTraining(epochs="1..5", batch_size=10), LocalTraining(epochs=1, batch_size=50)


def _quadratic(*, heterogeneity: float) -> Experiment:
    options = {"dimension": 10, "condition": 10.0, "heterogeneity": heterogeneity}
    return BASE.replace(
        model=ModelSettings(name="linear", options={"bias": False}, loss="least_squares"),
        data=DataSettings(name="quadratic", num_clients=100, partition="natural", options=options),
        local=LocalTraining(epochs="1..5", batch_size="full", learning_rate=0.5),
        metric="distance",
        target=1e-3,
        rounds=200,
    )


def _classes(
    dataset: str, network: str, partition: str, local: LocalTraining, *, target: float, rounds: int
) -> Experiment:
    data = DataSettings(name=dataset, num_clients=100, partition=partition)
    return BASE.replace(model=ModelSettings(name=network), data=data, local=local, target=target, rounds=rounds)


# By column: what is learnt, from whose data, and when a run has arrived.
PROBLEMS = {
    "quadratic/mild": _quadratic(heterogeneity=0.1),
    "quadratic/strong": _quadratic(heterogeneity=1.0),
    "digits_softmax_regression/iid": _classes("digits", "softmax_regression", "iid", DIGITS, target=0.9, rounds=200),
    "digits_softmax_regression/noniid": _classes(
        "digits", "softmax_regression", "shards", DIGITS, target=0.9, rounds=200
    ),
    "digits_mlp/iid": _classes("digits", "mlp", "iid", DIGITS, target=0.9, rounds=100),
    "digits_mlp/noniid": _classes("digits", "mlp", "shards", DIGITS, target=0.9, rounds=100),
    "mnist_mlp/iid": _classes("mnist", "mlp", "iid", MNIST, target=0.93, rounds=60),
    "mnist_mlp/noniid": _classes("mnist", "mlp", "shards", MNIST, target=0.85, rounds=60),
}


def runs(size: Size) -> Iterator[PaperRun]:
    """Return a run of each method on each problem; there is one size."""
    for column, problem in PROBLEMS.items():
        name = f"auto-{column.replace('/', '-')}"
        for label, algorithm in (AUTOS | CONSTANTS).items():
            yield PaperRun(column, problem.replace(name=name, label=label, algorithm=algorithm))


AUTO = Study(
    "auto",
    "Beside the paper: rho and eta that choose themselves, against every constant",
    runs,
    small_seeds=3,
    paper_seeds=3,
    chosen=tuple(AUTOS),
    aside=tuple(column for column, problem in PROBLEMS.items() if problem.model.name != "mlp"),
)
