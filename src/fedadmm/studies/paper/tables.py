"""Tables III to V, two tables that the paper's source hides, and the figures that show the same runs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedadmm.algorithms import FedProx
from fedadmm.studies.paper.setting import ALGORITHM_1, COMPARED, METHODS, Distribution, PaperMethod, Setting
from fedadmm.studies.paper.study import PaperRun, Size, published

DISTRIBUTIONS: tuple[Distribution, Distribution] = ("iid", "noniid")


def printed(table: str, column: int) -> dict[str, dict[str, Any]]:
    """Return the rounds, and the accuracies if there are any, that the paper prints in a column, by row."""
    numbers = published(table).items()
    return {what: {label: row[column] for label, row in rows.items()} for what, rows in numbers}


TABLE_3_COLUMNS = (
    Setting("mnist", 100, "iid", epochs=5, batch_size=200),
    Setting("mnist", 100, "noniid", epochs=5, batch_size=200),
    Setting("mnist", 1000, "iid", epochs=20, batch_size="full"),
    Setting("mnist", 1000, "noniid", epochs=20, batch_size=10),
    Setting("fmnist", 1000, "iid", epochs=20, batch_size="full"),
    Setting("fmnist", 1000, "noniid", epochs=20, batch_size=10),
    Setting("cifar10", 1000, "iid", epochs=20, batch_size="full"),
    Setting("cifar10", 1000, "noniid", epochs=20, batch_size=10),
)


def table_3(size: Size) -> Iterator[PaperRun]:
    """Return the runs; the small size has the two columns with 100 clients."""
    for column, setting in enumerate(TABLE_3_COLUMNS[: 2 if size == "small" else None]):
        yield from setting.at(size).runs(METHODS, printed=printed("table3", column))


# The paper names neither the batch size nor the number of clients of Table IV; its MNIST figures at E = 5 are those of
# Table III with 100 clients and B = 200, and CIFAR-10 is taken to be alike.
TABLE_4_COLUMNS = tuple(
    Setting(dataset, 100, distribution, epochs=5, batch_size=200)
    for dataset in ("mnist", "cifar10")
    for distribution in DISTRIBUTIONS
)


def table_4(size: Size) -> Iterator[PaperRun]:
    """Return a run for each E, with the learning rate found at E = 5: the paper keeps it fixed."""
    for column, setting in enumerate(TABLE_4_COLUMNS):
        tuned = setting.at(size)
        for epochs, rounds in printed("table4", column)["rounds"].items():
            run = replace(tuned, epochs=int(epochs)).experiment(f"fedadmm_E{epochs}", ALGORITHM_1)
            tuned_as = tuned.experiment("fedadmm", ALGORITHM_1)
            yield PaperRun(tuned.column, run, tuned_as, rounds if tuned.is_published else None)


# The paper does not name E and B of Table V; its FedADMM figures for 200 clients of FMNIST are those of the
# adaptability table, E = 10 and B = 50.
TABLE_5_COLUMNS = tuple(
    Setting(dataset, clients, distribution, epochs=10, batch_size=50)
    for dataset in ("mnist", "fmnist")
    for clients in (200, 500)
    for distribution in DISTRIBUTIONS
)
TABLE_5_METHODS = {"fedadmm": ALGORITHM_1} | {
    f"fedprox_rho{rho:g}": PaperMethod(FedProx(rho=rho)) for rho in (0.01, 0.1, 1.0)
}


def table_5(size: Size) -> Iterator[PaperRun]:
    """Return the runs of Table V, which has rounds, and of the hidden table, which has the accuracy."""
    for column, setting in enumerate(TABLE_5_COLUMNS):
        yield from setting.at(size).runs(TABLE_5_METHODS, printed=printed("table5", column))


ADAPTABILITY_COLUMNS = tuple(
    Setting(dataset, 200, distribution, epochs=10, batch_size=50)
    for dataset in ("fmnist", "cifar10")
    for distribution in DISTRIBUTIONS
)


def adaptability(size: Size) -> Iterator[PaperRun]:
    """Return the runs; FedADMM's learning rate is 0.1 throughout, the others' is tuned."""
    for column, setting in enumerate(ADAPTABILITY_COLUMNS):
        for run in setting.at(size).runs(COMPARED, printed=printed("adaptability", column)):
            yield run._replace(tuned_as=None) if run.experiment.label == "fedadmm" else run
