"""Table III: rounds to a target accuracy, and the speed-up over FedSGD."""

from collections.abc import Iterator

from fedadmm.studies.paper.methods import METHODS
from fedadmm.studies.paper.preset import Cell, Preset, Size
from fedadmm.studies.paper.setting import Setting

COLUMNS = (
    Setting("mnist", 100, "iid", epochs=5, batch_size=200),
    Setting("mnist", 100, "noniid", epochs=5, batch_size=200),
    Setting("mnist", 1000, "iid", epochs=20, batch_size="full"),
    Setting("mnist", 1000, "noniid", epochs=20, batch_size=10),
    Setting("fmnist", 1000, "iid", epochs=20, batch_size="full"),
    Setting("fmnist", 1000, "noniid", epochs=20, batch_size=10),
    Setting("cifar10", 1000, "iid", epochs=20, batch_size="full"),
    Setting("cifar10", 1000, "noniid", epochs=20, batch_size=10),
)
PUBLISHED = {
    "fedsgd": ("297", "250", "201", "269", "390", "530", "186", "202"),
    "fedadmm": ("10", "33", "8", "13", "3", "7", "7", "9"),
    "fedavg": ("19", "77", "61", "73", "10", "33", "24", "50"),
    "fedprox": ("29", "100+", "78", "100+", "14", "61", "32", "68"),
    "scaffold": ("27", "76", "61", "84", "12", "40", "37", "100+"),
}


def cells(size: Size) -> Iterator[Cell]:
    """Return the runs; the small size has the two columns with 100 clients."""
    for number, setting in enumerate(COLUMNS[: 2 if size == "small" else None]):
        published = {label: row[number] for label, row in PUBLISHED.items()}
        yield from setting.at(size).cells(METHODS, published=published)


TABLE_3 = Preset("table3", "Table III: rounds to the target accuracy", cells, small_seeds=3)
