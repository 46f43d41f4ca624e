"""The tables that need no run: they are worked out on the spot, most of them on quadratics."""

from collections.abc import Callable
from importlib import import_module

from fedadmm.studies.paper.study import Rows, published


def in_theory(module: str, function: str) -> Callable[[], Rows]:
    """Return a function of studies/theory, which is imported when it is called: it needs torch."""
    return lambda: getattr(import_module(f"fedadmm.studies.theory.{module}"), function)()


def unequal_volumes() -> Rows:
    """Deal balanced labels out as Figure 10 does, and describe the clients' volumes."""
    import numpy as np

    from fedadmm.data.partition import imbalanced

    rows = []
    for dataset, samples, printed in (("FMNIST", 60_000, "171.03"), ("CIFAR-10", 50_000, "142.52")):
        dealt = imbalanced(np.arange(samples) % 10, num_clients=200, generator=np.random.default_rng(0))
        volumes = np.array([len(own) for own in dealt])
        rows.append(
            {
                "dataset": dataset,
                "clients": "200",
                "samples": f"{volumes.sum():,}",
                "mean": f"{volumes.mean():g}",
                "standard deviation": f"{volumes.std(ddof=1):.4f}",
                "the paper's": printed,
            }
        )
    return rows


def related_work() -> Rows:
    """Return what the paper says of each method, beside what we found."""
    return [
        {"method": name, "the paper": claim["sentence"], "what we found": claim["finding"]}
        for name, claim in published("related_work").items()
    ]
