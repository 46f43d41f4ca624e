"""Laws 5 and 8: the same experiment gives the same bytes twice, and after a stop in the middle."""

from typing import Any

import pytest
import torch

from fedadmm.core.algorithm import Algorithm
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.runs.simulation import Simulation
from fedadmm.state.memory import MemoryStore
from fedadmm.studies.laws import laws
from fedadmm.training.local import LocalTraining
from methods import ON_NETWORKS
from play import identical
from worlds import World, made, network, perceptron, some_data


def _simulation(method: Algorithm, store: MemoryStore | None = None, **options: Any) -> Simulation:
    usual = {"model": made(perceptron if trait(method, SkipsCommunication) else network)}
    return Simulation(
        method,
        **usual | options,
        data=some_data([8, 10, 6, 12, 8]),
        local=LocalTraining(epochs="1..3", batch_size=6),
        participation=0.6,
        weighting="examples",
        seed=3,
        engine="serial",
        open_store=None if store is None else lambda *_: store,
    )


def _advance(simulation: Simulation, rounds: int) -> Simulation:
    for _ in range(rounds):
        simulation.advance()
    return simulation


def _outcome(simulation: Simulation) -> Any:
    records = [{**record.to_json(), "seconds": 0} for record in simulation.history]
    states = {client: simulation._store.get(client) for client in simulation._store}
    return tuple(simulation.checkpoint), states, records


def test_the_same_rounds_twice_give_the_same_bytes(method: Algorithm, world: World) -> None:
    assert laws.same_bytes_twice(method, world) is None


def test_a_run_that_stopped_and_went_on_is_the_run_that_did_not(method: Algorithm) -> None:
    through = _advance(_simulation(method), 3)
    store = MemoryStore()
    _advance(_simulation(method, store), 2)
    torch.manual_seed(99)  # whatever else the process did in between
    resumed = _advance(_simulation(method, store), 1)
    assert identical(_outcome(through), _outcome(resumed))


def test_a_round_that_was_not_committed_leaves_no_trace(method: Algorithm, world: World) -> None:
    assert laws.lost_leaves_no_trace(method, world) is None


@pytest.mark.slow
def test_methods_meet_the_same_clients_epochs_and_initial_model() -> None:
    simulations = [_simulation(method, model=made(perceptron)) for method in ON_NETWORKS.values()]
    first = simulations[0]
    for other in simulations[1:]:
        assert identical(first.theta, other.theta)
        for round in (1, 2, 30):
            theirs = {assignment.client: assignment for assignment in other.assignments(round)}
            for ours in first.assignments(round):
                assert ours[:3] == theirs[ours.client][:3]
                assert not trait(other.algorithm, SkipsCommunication) or len(theirs) == 5
