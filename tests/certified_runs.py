"""Runs on a few quadratics that Theorem 1 is about, with their certificates."""

from typing import Any

from fedadmm import Experiment, FedADMM

NUM_CLIENTS = 5
CERTIFIABLE = FedADMM(rho=4.0, eta="participation", newcomer="initial")


def experiment(**changes: Any) -> Experiment:
    """Return such a run, with changes."""
    table: dict[str, Any] = {
        "rounds": 6,
        "participation": 0.6,
        "engine": "serial",
        "algorithm": CERTIFIABLE,
        "model": {"name": "linear", "options": {"bias": False}, "loss": "least_squares"},
        "data": {"name": "quadratic", "num_clients": NUM_CLIENTS, "partition": "natural", "options": {"dimension": 3}},
        "local": {"epochs": 30, "batch_size": "full", "learning_rate": 0.2},
        "certificate": {},
    }
    return Experiment(**table | changes)
