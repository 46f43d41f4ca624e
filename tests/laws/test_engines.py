"""The laws of states, bytes and refusal, for every method on every engine."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fedadmm import Simulation
from fedadmm.core.optional import SkipsCommunication, imbalance, invariant_of, trait
from methods import ON_NETWORKS
from play import identical
from ray_here import use_ray_here
from small_runs import SIZES, outcome, simulation_of
from worlds import made, perceptron, some_data

ENGINES = ["serial", "workers", "stacked", "ray"]
ROUNDS = [[1, 3], [0, 3, 4], [], [0, 1, 2, 3, 4, 5, 6, 7]]
POISONED = 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("engine", ENGINES),
    pytest.mark.parametrize("name", ON_NETWORKS),
]


@pytest.fixture(autouse=True)
def _ray_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_here(monkeypatch, num_cpus=2)


def run_of(name: str, engine: str, *, rounds: Sequence[Sequence[int]] = ROUNDS, **options: Any) -> Simulation:
    """Return a run with these clients in its rounds."""
    return simulation_of(
        ON_NETWORKS[name],
        engine=engine,
        workers=2,
        model=made(perceptron),
        participation=lambda number, generator, devices: rounds[number - 1],
        **options,
    )


def test_a_state_changes_when_its_client_takes_part_and_the_books_balance(name: str, engine: str) -> None:
    run = run_of(name, engine)
    initial, weights = run.theta.clone(), run.weights.values
    assert weights is not None
    before: dict[int, Any] = {}
    for selected in ROUNDS:
        record = run.advance()
        assert record.clients in (tuple(selected), ())
        assert record.clients == tuple(selected) or trait(ON_NETWORKS[name], SkipsCommunication)
        clients = [*record.clients, *record.silent]
        states = {client: run._store.get(client) for client in run._store}
        assert set(states) == set(before) | set(clients)
        for client in set(before) - set(clients):
            assert identical(states[client], before[client])
        before = copy.deepcopy(states)
        invariant = invariant_of(
            ON_NETWORKS[name], run.checkpoint.server, initial=initial, registered=float(weights.sum())
        )
        if invariant is not None:
            kept = [(float(weights[client]), state) for client, state in states.items()]
            assert imbalance(invariant, kept, registered=float(weights.sum())) < 2e-5  # float32
    run.close()


def test_the_same_run_twice_gives_the_same_bytes(name: str, engine: str) -> None:
    first, second = (outcome(run_of(name, engine), rounds=len(ROUNDS)) for _ in range(2))
    assert identical(first[0], second[0])
    assert identical(first[1], second[1])
    assert first[2] == second[2]


def test_a_refused_client_was_not_selected(name: str, engine: str) -> None:
    data = some_data(SIZES)
    data.client(POISONED).inputs.fill_(torch.nan)
    refused = outcome(run_of(name, engine, data=data), rounds=len(ROUNDS))
    without = [[client for client in clients if client != POISONED] for clients in ROUNDS]
    absent = outcome(run_of(name, engine, rounds=without, data=data), rounds=len(ROUNDS))
    assert POISONED in refused[2][1]["refused"]
    assert identical(refused[1], absent[1])
    assert identical(refused[0], absent[0])


def test_an_upload_that_is_finite_and_absurd_is_refused_and_named(name: str, engine: str) -> None:
    data = some_data(SIZES)
    data.client(POISONED).inputs.fill_(1e8)
    _, states, records = outcome(run_of(name, engine, data=data), rounds=2)
    assert POISONED in records[1]["oversized"]
    assert POISONED in records[1]["refused"]
    assert POISONED not in records[1]["clients"]
    assert POISONED not in states
