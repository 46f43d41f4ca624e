"""Beside the paper: rho and eta that choose themselves against every constant of a grid, in rounds to a target.

The rules were made on quadratics and on softmax regression, and frozen; an mlp on digits and on MNIST judges them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fedadmm.algorithms import FedADMM, FedADMMAuto, FedDynAuto
from fedadmm.config.experiment import DataSettings, Experiment, ModelSettings, StateSettings
from fedadmm.core.algorithm import Algorithm
from fedadmm.studies.paper.study import PaperRun, Size, Study
from fedadmm.training.local import LocalTraining

RHOS = (0.001, 0.01, 0.1, 1.0)
ETAS: Mapping[str, Any] = {
    "0.5": {"eta": 0.5},
    "1": {"eta": 1.0},
    "participation": {"eta": "participation", "newcomer": "initial"},
    "seen": {"eta": "seen"},
}
CONSTANTS: dict[str, Algorithm[Any, Any, Any]] = {
    f"fedadmm-{rho:g}-{name}": FedADMM(rho=rho, **how) for name, how in ETAS.items() for rho in RHOS
}
AUTOS: dict[str, Algorithm[Any, Any, Any]] = {
    "fedadmm_auto": FedADMMAuto(),
    "feddyn_auto": FedDynAuto(),
    "feddyn_auto_all": FedDynAuto(over="all"),
}


class Problem(NamedTuple):
    """A column of the table: what is learnt, from whose data, and when a run has arrived."""

    column: str
    model: ModelSettings
    data: DataSettings
    local: LocalTraining
    target: float
    rounds: int
    judges: bool = True  # False: the rules were made on it

    def experiment(self, label: str, algorithm: Algorithm[Any, Any, Any]) -> Experiment:
        """Return a method's run: a tenth of 100 clients in a round."""
        return Experiment(
            name=f"auto-{self.column.replace('/', '-')}",
            label=label,
            rounds=self.rounds,
            metric="distance" if self.data.name == "quadratic" else None,
            target=self.target,
            stop_at_target=True,
            participation=0.1,
            engine="stacked",
            algorithm=algorithm,
            model=self.model,
            data=self.data,
            local=self.local,
            state=StateSettings(store="memory"),
        )


def _quadratic(name: str, heterogeneity: float) -> Problem:
    return Problem(
        f"quadratic/{name}",
        ModelSettings(name="linear", options={"bias": False}, loss="least_squares"),
        DataSettings(
            name="quadratic",
            num_clients=100,
            partition="natural",
            options={"dimension": 10, "condition": 10.0, "heterogeneity": heterogeneity},
        ),
        LocalTraining(epochs="1..5", batch_size="full", learning_rate=0.5),
        target=1e-3,
        rounds=200,
        judges=False,
    )


def _classes(dataset: str, network: str, partition: str, local: LocalTraining, target: float, rounds: int) -> Problem:
    return Problem(
        f"{dataset}_{network}/{'iid' if partition == 'iid' else 'noniid'}",
        ModelSettings(name=network),
        DataSettings(name=dataset, num_clients=100, partition=partition),
        local,
        target,
        rounds,
        judges=network == "mlp",
    )


DIGITS, MNIST = LocalTraining(epochs="1..5", batch_size=10), LocalTraining(epochs=1, batch_size=50)
PROBLEMS = (
    _quadratic("mild", 0.1),
    _quadratic("strong", 1.0),
    _classes("digits", "softmax_regression", "iid", DIGITS, target=0.9, rounds=200),
    _classes("digits", "softmax_regression", "shards", DIGITS, target=0.9, rounds=200),
    _classes("digits", "mlp", "iid", DIGITS, target=0.9, rounds=100),
    _classes("digits", "mlp", "shards", DIGITS, target=0.9, rounds=100),
    _classes("mnist", "mlp", "iid", MNIST, target=0.93, rounds=60),
    _classes("mnist", "mlp", "shards", MNIST, target=0.85, rounds=60),
)


def runs(size: Size) -> Iterator[PaperRun]:
    """Return a run of each method on each problem; there is one size."""
    for problem in PROBLEMS:
        for label, algorithm in (AUTOS | CONSTANTS).items():
            yield PaperRun(problem.column, problem.experiment(label, algorithm))


AUTO = Study(
    "auto",
    "Beside the paper: rho and eta that choose themselves, against every constant",
    runs,
    small_seeds=3,
    paper_seeds=3,
    chosen=tuple(AUTOS),
    aside=tuple(problem.column for problem in PROBLEMS if not problem.judges),
)
