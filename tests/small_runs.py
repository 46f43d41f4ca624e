"""Runs of eight clients, small enough to be played many times."""

from typing import Any

import torch

from fedadmm import LocalTraining, Simulation
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.state.disk import DiskStore
from worlds import made, network, perceptron, some_data

SIZES = [8, 10, 6, 12, 8, 14, 6, 8]


def simulation_of(method: Algorithm, *, folder: Any = None, float_type: Any = None, **options: Any) -> Simulation:
    """Return eight clients that train a network with buffers and dropout; six of them take part in a round."""

    def on_disk(types: Any, initial: torch.Tensor) -> DiskStore:
        return DiskStore(folder, types=types, identity={}, initial=initial, float_type=float_type)

    settings = {
        "model": made(perceptron if trait(method, SkipsCommunication) else network),
        "data": some_data(SIZES),
        "local": LocalTraining(epochs="1..2", batch_size=6),
        "participation": 0.75,
        "weighting": "examples",
        "seed": 3,
        "open_store": on_disk if folder else None,
    }
    return Simulation(method, **{**settings, **options})


def outcome(simulation: Simulation, *, rounds: int) -> Any:
    """Play rounds, and return all that came of them."""
    for _ in range(rounds):
        simulation.advance()
    simulation.close()
    records = [{**record.to_json(), "seconds": 0} for record in simulation.history]
    states = {client: simulation._store.get(client) for client in simulation._store}
    return tuple(simulation.checkpoint), states, records
