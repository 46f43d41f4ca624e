"""The laws of states, bytes and refusal, for every algorithm on every engine; the four laws share three runs.

Each choice that an algorithm offers is on one engine, and each engine has its share of the choices.

What the workers did is held against the serial engine: its bytes are those of a second run, and of one without those
who are refused.
"""

import copy
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import cycle
from typing import Any, NamedTuple

import pytest
import torch

from fedadmm import Simulation
from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.optional import SkipsCommunication, imbalance, invariant_of, trait
from methods import ON_NETWORKS
from play import identical
from ray_here import use_ray_here
from small_runs import SIZES, outcome, simulation_of
from worlds import made, perceptron, some_data

ENGINES = ["serial", "workers", "stacked", "ray"]
ROUNDS = [[1, 3], [0, 3, 4], [], [0, 1, 2, 3, 4, 5, 6, 7]]
POISONED, ABSURD = 4, 6  # clients whose uploads are not finite, and finite but far too long
REFUSED = [[], [4], [], [4, 6]]

pytestmark = pytest.mark.slow


def run_of(name: str, engine: str, *, rounds: Sequence[Sequence[int]] = ROUNDS, **options: Any) -> Simulation:
    """Return a run with these clients in its rounds."""
    data = some_data(SIZES)
    data.client(POISONED).inputs.fill_(torch.nan)
    data.client(ABSURD).inputs.fill_(1e8)
    return simulation_of(
        ON_NETWORKS[name],
        engine=engine,
        workers=2,
        model=made(perceptron),
        data=data,
        participation=lambda number, generator, devices: rounds[number - 1],
        **options,
    )


class Runs(NamedTuple):
    """What came of a method on an engine."""

    name: str
    run: Any  # (checkpoint, states, records)
    books: list[tuple[dict[int, Any], float]]  # after each of its rounds: the states, and how far the invariant is off
    again: Any
    without: Any  # the run in which those who are refused were never selected


CHOICES = [name for name in ON_NETWORKS if name not in ALGORITHMS]
ENGINES_OF = dict.fromkeys(ON_NETWORKS, ENGINES)
ENGINES_OF |= {name: [engine] for name, engine in zip(CHOICES, cycle(ENGINES), strict=False)}
# The laws of one method are tested in one process, which plays the runs once.
CASES = [
    pytest.param((name, engine), id=f"{name}-{engine}", marks=pytest.mark.xdist_group(f"laws of {name}"))
    for name, engines in ENGINES_OF.items()
    for engine in engines
]


@pytest.fixture(scope="module", params=CASES)
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Return the runs of each method on each engine."""
    name, engine = request.param
    with pytest.MonkeyPatch.context() as patch:
        use_ray_here(patch, num_cpus=2)
        first = run_of(name, engine)
        books: list[tuple[dict[int, Any], float]] = []
        initial = first.theta.clone()
        for _ in ROUNDS:
            first.advance()
            books.append(_books(first, initial))
        again, without = _again_and_without(name, "serial" if engine == "workers" else engine)
        yield Runs(name, outcome(first, rounds=0), books, again, without)


@lru_cache(maxsize=1)  # the serial engine's are the workers' too
def _again_and_without(name: str, engine: str) -> tuple[Any, Any]:
    """Return what comes of a run, and of one in which those who are refused were never selected."""
    without = [[c for c in clients if c not in (POISONED, ABSURD)] for clients in ROUNDS]
    runs = (run_of(name, engine), run_of(name, engine, rounds=without))
    again, other = (outcome(run, rounds=len(ROUNDS)) for run in runs)
    return again, other


def _books(run: Simulation, initial: torch.Tensor) -> tuple[dict[int, Any], float]:
    states = {client: copy.deepcopy(run._store.get(client)) for client in run._store}
    weights = run.weights.values
    assert weights is not None
    registered = float(weights.sum())
    invariant = invariant_of(run.algorithm, run.checkpoint.server, initial=initial, registered=registered)
    kept = [(float(weights[client]), state) for client, state in states.items()]
    return states, 0.0 if invariant is None else imbalance(invariant, kept, registered=registered)


def test_a_state_changes_when_its_client_takes_part_and_the_books_balance(runs: Runs) -> None:
    before: dict[int, Any] = {}
    for selected, refused, record, (states, off) in zip(ROUNDS, REFUSED, runs.run[2], runs.books, strict=True):
        applied = tuple(client for client in selected if client not in refused)
        assert record["clients"] in (applied, ())
        assert record["clients"] == applied or trait(ON_NETWORKS[runs.name], SkipsCommunication)
        clients = {*record["clients"], *record.get("silent", [])}
        assert set(states) == set(before) | clients
        for client in set(before) - clients:
            assert identical(states[client], before[client])
        for client in clients & set(before):
            assert states[client] == () or not identical(states[client], before[client])
        assert off < 2e-5  # float32
        before = states


def test_the_same_run_twice_gives_the_same_bytes(runs: Runs) -> None:
    assert identical(runs.run[0], runs.again[0])
    assert identical(runs.run[1], runs.again[1])
    assert runs.run[2] == runs.again[2]


def test_a_refused_client_was_not_selected(runs: Runs) -> None:
    assert POISONED in runs.run[2][1]["refused"]
    assert identical(runs.run[1], runs.without[1])
    assert identical(runs.run[0], runs.without[0])


def test_an_upload_that_is_finite_and_absurd_is_refused_and_named(runs: Runs) -> None:
    _, states, records = runs.run
    assert ABSURD in records[3]["oversized"]
    assert ABSURD in records[3]["refused"]
    assert ABSURD not in records[3]["clients"]
    assert ABSURD not in states
