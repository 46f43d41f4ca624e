"""The tables that need no run: they are worked out on the spot, most of them on quadratics."""

from collections.abc import Callable
from importlib import import_module

from fedadmm.studies.paper.related_work import related_work
from fedadmm.studies.paper.study import Study, WorkedOut


def _table_in(module: str, function: str) -> Callable[[], WorkedOut]:
    """Return a function of studies/theory, which is imported when it is called: it needs torch."""
    return lambda: getattr(import_module(f"fedadmm.studies.theory.{module}"), function)()


def unequal_volumes() -> WorkedOut:
    """Deal balanced labels out as Figure 10 does, and describe the clients' volumes."""
    import numpy as np

    from fedadmm.data.partition import imbalanced

    rows = []
    for dataset, samples, published in (("FMNIST", 60_000, "171.03"), ("CIFAR-10", 50_000, "142.52")):
        dealt = imbalanced(np.arange(samples) % 10, num_clients=200, generator=np.random.default_rng(0))
        volumes = np.array([len(own) for own in dealt])
        numbers = (f"{volumes.sum():,}", f"{volumes.mean():g}", f"{volumes.std(ddof=1):.4f}")
        rows.append((dataset, "200", *numbers, published))
    return WorkedOut(("dataset", "clients", "samples", "mean", "standard deviation", "the paper's"), tuple(rows))


TABLE_1 = Study(
    "table1", "Table I: rounds against m / S and epsilon, on quadratics", table=_table_in("table_1", "table")
)
TABLE_6 = Study("table6", "Table VI: statistics of the unequal volumes", table=unequal_volumes)
TABLE_MESSAGES = Study(
    "table_messages", "Unprinted table: message size and storage", table=_table_in("table_algorithms", "messages_table")
)
TABLE_ALGORITHMS = Study(
    "table_algorithms",
    "The algorithms: files, messages, and where they end on quadratics",
    table=_table_in("table_algorithms", "table"),
)
RELATED_WORK = Study("related_work", "What the paper says of each method, and what we found", table=related_work)
LEMMAS = Study(
    "lemmas", "Lemmas 1 to 3 at every round of random quadratics", table=_table_in("analysis", "lemmas_table")
)
THEOREM_1 = Study(
    "theorem1", "Theorem 1: means over 20 draws on random quadratics", table=_table_in("analysis", "theorem_table")
)
FLOOR = Study("floor", "Theorem 1: the floor that inexact solves set", table=_table_in("analysis", "floor_table"))
REMARK_2 = Study(
    "remark2", "Remark 2: clients that take part ever more seldom", table=_table_in("analysis", "remark_table")
)
