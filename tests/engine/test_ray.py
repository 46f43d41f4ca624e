"""The ray engine is the serial engine to a stated bound, and the same to the bit whatever becomes of an actor.

What does not need a cluster is tried on a Ray that lives in this process, in tests/ray_here.py.
"""

import math
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm import FedADMM, FedAvg, InputError, Local, Simulation
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.messages import MeanInOrder
from fedadmm.core.round import Visit, run_round
from fedadmm.engine.parcel import packed, unpacked
from fedadmm.engine.serial import SerialEngine
from fedadmm.state.disk import DiskStore
from methods import METHODS
from play import Watched, identical
from ray_here import use_ray_here
from worlds import made, network, some_data

SIZES = [8, 10, 6, 12, 8, 14, 6, 8]


def simulation_of(method: Algorithm, *, folder: Any = None, float_type: Any = None, **options: Any) -> Simulation:
    """Return eight clients that train a network with buffers and dropout; six of them take part in a round."""

    def on_disk(kinds: Any, initial: torch.Tensor) -> DiskStore:
        return DiskStore(folder, kinds=kinds, identity={}, initial=initial, float_type=float_type)

    settings = {
        "engine": "ray",
        "model": made(network),
        "data": some_data(SIZES),
        "local": Local(epochs="1..3", batch_size=6),
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
    return tuple(simulation.progress), states, records


class Recorded(Watched):
    """An algorithm that keeps the mean uploads and the turnouts it was given."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__(algorithm)
        self.given: list[Any] = []

    def server_update(self, server: Any, mean: Any, turnout: Any) -> Any:
        """Update as the other does, and keep what was given."""
        self.given.append((mean, turnout))
        return super().server_update(server, mean, turnout)


class Beside:
    """The committed states of a store, and what is staged beside it."""

    def __init__(self, store: Any) -> None:
        self.get, self.staged = store.get, {}

    def stage(self, round: int, client: int, state: Any) -> None:
        """Keep a state."""
        self.staged[client] = state


def magnitude(visits: list[Visit], weight: Any) -> Any:
    """Return the mean of the uploads without their signs."""
    mean = MeanInOrder()
    for visit in visits:
        upload = [abs(field) for field in visit.upload]
        mean.add(tuple(upload), weight=weight(visit.client))
    return mean.mean()


@pytest.mark.parametrize("name", METHODS)
def test_every_round_is_the_serial_one_to_the_stated_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_here(monkeypatch, num_cpus=3)
    method = Recorded(METHODS[name])
    ours = simulation_of(method)
    initial = ours.theta.clone()
    for number in range(1, 11):
        before, beside = ours.progress, Beside(ours._store)
        download = method.download(before.server)
        serial = SerialEngine(method, ours._task, beside, initial=initial)
        visits = list(
            serial.visits(download, buffers=before.buffers, assignments=ours.assignments(number))
        )
        expected, tally = run_round(
            method, before, visits, weight=ours._weight, registered=ours._registered
        )
        record = ours.advance()
        (serial_mean, serial_turnout), (mean, turnout) = method.given[-2:]

        assert identical({client: ours._store.get(client) for client in beside.staged}, beside.staged)
        assert turnout == serial_turnout
        assert torch.equal(ours.progress.buffers.integers, expected.buffers.integers)
        assert {**record.to_json(), **tally._asdict()} == record.to_json() | {"clients": tally.clients, "refused": ()}
        # n = 6 clients: ceil(log2 6) = 3, so 2 (3 + 4) = 14 units of 2^-23.
        bound = 14 * torch.finfo(torch.float32).eps
        assert math.ceil(math.log2(len(visits))) == 3
        for ours_, theirs, size in zip(mean, serial_mean, magnitude(visits, ours._weight), strict=True):
            assert bool(((ours_ - theirs).abs() <= bound * size).all())
        floats = torch.stack([visit.effort.buffers.floats.abs() for visit in visits]).amax(dim=0)
        assert bool(((ours.progress.buffers.floats - expected.buffers.floats).abs() <= bound * floats).all())
