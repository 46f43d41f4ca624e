"""Beside the paper: rho and eta that choose themselves against every constant of a grid, in rounds to a target.

The rules were made on quadratics and on softmax regression, and frozen; an mlp on digits and on MNIST judges them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fedadmm.algorithms import FedADMM, FedADMMAuto, FedDynAuto
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.studies.paper.study import PaperRun, Size, Study, experiments_in

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
PROBLEMS = experiments_in("auto.toml")  # by column


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
