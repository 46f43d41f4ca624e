"""The ray engine is the serial engine to a stated bound, and the same to the bit whatever becomes of an actor.

What does not need a cluster is tried on a Ray that lives in this process, in tests/ray_here.py.
"""

import sys
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedadmm import FedADMM, FedAvg, InputError, LocalTraining, Simulation
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.mean import MeanInOrder
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.core.round import Assignment, run_round
from fedadmm.engine.ray_actor import packed, unpacked
from fedadmm.engine.serial import SerialEngine
from methods import ON_NETWORKS
from play import Watched, identical
from ray_here import RayHere, use_ray_here
from small_runs import SIZES, outcome, simulation_of
from worlds import made, some_data

EPS = torch.finfo(torch.float32).eps
BOUND = 14 * EPS  # of six clients: ceil(log2 6) = 3, and 2 (3 + 4) = 14


def ray_run(method: Algorithm, **options: Any) -> Simulation:
    """Return a run on the ray engine."""
    return simulation_of(method, engine="ray", **options)


class Recorded(Watched):
    """An algorithm that keeps the mean uploads and the turnouts it was given."""

    given: list[Any] = field(default_factory=list, compare=False)

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


def mean_of(messages: Iterable[Any], assigned: Iterable[Assignment], weight: Any) -> Any:
    """Return the weighted mean of the assigned clients' messages."""
    mean = MeanInOrder()
    for message, assignment in zip(messages, assigned, strict=True):
        mean.add(message, weight=weight(assignment.client))
    return mean.mean()


def within(bound: float, ours: Any, theirs: Any, size: Any) -> bool:
    """Return whether two messages differ, in every coordinate, by at most `bound` times the size there."""
    rows = [map(torch.as_tensor, row) for row in zip(ours, theirs, size, strict=True)]
    return all(bool(((our - their).abs() <= bound * large).all()) for our, their, large in rows)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> RayHere:
    """Ray in this process, with three CPUs."""
    return use_ray_here(monkeypatch, num_cpus=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, method in ON_NETWORKS.items() if not trait(method, SkipsCommunication)]
)
def test_every_round_is_the_serial_one_to_the_stated_bound(name: str, here: RayHere) -> None:
    method = Recorded(ON_NETWORKS[name])
    ours = ray_run(method)
    initial, weight = ours.theta.clone(), ours.weights
    for number in range(1, 4):
        before, beside = ours.checkpoint, Beside(ours._store)
        serial = SerialEngine(method, ours.task, beside, initial=initial)
        last_round = ours._store.round_of
        assigned = [a._replace(last_round=last_round(a.client)) for a in ours.assignments(number)]
        visits = list(serial.run(method.download(before.server), buffers=before.buffers, assignments=assigned))
        expected, summary = run_round(method, before, visits, weight=weight, registered=weight.total)
        record = ours.advance()

        assert identical({client: ours._store.get(client) for client in beside.staged}, beside.staged)
        same = {key: value for key, value in summary._asdict().items() if key not in ("achieved", "released")}
        assert {key: getattr(record, key) for key in same} == same
        assert summary.achieved == {}
        (serial_mean, serial_turnout), (mean, turnout) = method.given[-2:]
        assert turnout == serial_turnout
        size = mean_of((tuple(map(abs, visit.upload)) for visit in visits), assigned, weight)
        assert within(BOUND, mean, serial_mean, size)
        size = mean_of(((visit.stats.buffers.floats.abs(),) for visit in visits), assigned, weight)
        assert within(BOUND, ours.checkpoint.buffers[:1], expected.buffers[:1], size)
        assert torch.equal(ours.checkpoint.buffers.integers, expected.buffers.integers)


@pytest.mark.parametrize("num_shares", [2, 3, 31, 500])
def test_a_mean_of_means_is_within_the_stated_bound(num_shares: int) -> None:
    generator = torch.Generator().manual_seed(num_shares)
    uploads = [(torch.randn(50, generator=generator),) for _ in range(1000)]
    weights = torch.randint(1, 600, (1000,), generator=generator).tolist()
    whole, of_means = MeanInOrder(), MeanInOrder()
    for share in range(num_shares):
        own = MeanInOrder()
        for upload, weight in zip(uploads[share::num_shares], weights[share::num_shares], strict=True):
            own.add(upload, weight=weight)
        of_means.add(own.mean(), weight=own.weight)
    for upload, weight in zip(uploads, weights, strict=True):
        whole.add(upload, weight=weight)
    total = sum(weights)
    size = sum(weight * upload.abs() for (upload,), weight in zip(uploads, weights, strict=True)) / total
    # ceil(log2 1000) = 10, and 2 (10 + 4) = 28 units of 2^-23 are 3.3e-6.
    assert within(28 * EPS, of_means.mean(), whole.mean(), (size,))


@pytest.mark.slow
@pytest.mark.parametrize("lost", [{1}, {9}, {10}, {2, 11, 20, 21}, {*range(5, 99, 8)}], ids=str)
def test_a_lost_actor_changes_nothing(lost: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    # A round has ten answers: six states, three means, and one part of the test examples.
    use_ray_here(monkeypatch, num_cpus=3)
    undisturbed = outcome(ray_run(FedADMM()), rounds=4)
    cluster = use_ray_here(monkeypatch, num_cpus=3, lost=lost)
    assert identical(outcome(ray_run(FedADMM()), rounds=4), undisturbed)
    assert cluster.num_lost > 0


def test_clients_that_end_every_actor_end_the_run_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_here(monkeypatch, num_cpus=3, lost=range(1000))
    with pytest.raises(InputError, match=r"the clients of share \d ended 3 actors.*use fewer workers"):
        ray_run(FedADMM()).advance()


def test_a_round_that_was_not_committed_leaves_no_trace(here: RayHere, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = outcome(ray_run(FedADMM()), rounds=4)
    simulation = ray_run(FedADMM())
    simulation.advance()
    simulation.advance()
    with monkeypatch.context() as patch:
        patch.setattr(simulation._store, "commit", _full_disk)
        for _ in range(2):
            with pytest.raises(OSError, match="no space"):
                simulation.advance()
    assert identical(outcome(simulation, rounds=2), undisturbed)


def _full_disk(*_: Any, **__: Any) -> None:
    raise OSError("no space")


@pytest.mark.slow
@pytest.mark.parametrize("float_type", [None, torch.bfloat16])
def test_a_run_that_is_resumed_goes_on_as_if_nothing_had_been(float_type: Any, here: RayHere, tmp_path: Path) -> None:
    whole = outcome(ray_run(FedADMM(), folder=tmp_path / "whole", float_type=float_type), rounds=4)
    for _ in range(2):
        parts = outcome(ray_run(FedADMM(), folder=tmp_path / "parts", float_type=float_type), rounds=2)
    assert identical(parts, whole)


def test_an_evaluation_that_actors_share_is_the_serial_one(here: RayHere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedadmm.training.evaluation.BATCH", 1)  # a part for each of the 20 test examples
    ours, serial = (simulation_of(FedADMM(), engine=engine) for engine in ("ray", "serial"))
    assert ours.task.num_parts == 20
    server, buffers = ours.checkpoint.server, ours.checkpoint.buffers
    scores = [run._engine.evaluate(server, buffers=buffers) for run in (ours, serial)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("poisoned", [(2,), (0, 3, 6), (0, 1, 2)])
def test_a_refused_client_leaves_no_trace(poisoned: tuple[int, ...], here: RayHere) -> None:
    # Of three shares, (0, 3, 6) is one that has nobody left.
    data = some_data(SIZES)
    for client in poisoned:
        data.client(client).inputs.fill_(torch.nan)
    everybody = ray_run(FedADMM(), data=data, participation=1.0)
    others = [client for client in range(8) if client not in poisoned]
    without = ray_run(FedADMM(), data=data, participation=lambda *_: others)
    checkpoint, states, records = outcome(everybody, rounds=3)
    assert identical((checkpoint, states), outcome(without, rounds=3)[:2])
    assert [tuple(record["refused"]) for record in records] == [poisoned] * 3
    # Eight clients were sent the model and answered.
    (one,) = {record.bytes_up // len(others) for record in without.history}
    assert [record["bytes_up"] for record in records] == [8 * one] * 3


@pytest.mark.parametrize(("address", "connection"), [("10.0.0.1:6379", (None, None)), (None, ("local", 2))])
def test_ray_is_that_of_the_environment_or_started_here_and_then_ended(
    address: str | None, connection: Any, here: RayHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.connected = False
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)  # which Ray reads for itself
    ray_run(FedADMM(), workers=2).close()
    assert here.connection == connection
    assert not here.connected


def test_a_ray_in_use_is_left_in_use(here: RayHere) -> None:
    ray_run(FedADMM()).close()
    assert here.connection is None
    assert here.connected


def test_more_workers_than_cpus_are_refused(here: RayHere) -> None:
    with pytest.raises(InputError, match="workers=4, and the Ray cluster has 3 CPUs; use fewer, or add nodes"):
        ray_run(FedADMM(), workers=4)


def test_without_ray_the_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'engine="ray" needs Ray; pip install "fedadmm\[ray\]"'):
        ray_run(FedADMM())


def test_data_in_a_parcel_is_not_copied() -> None:
    data = some_data(SIZES)
    parcel = packed(data)
    twin = unpacked(parcel)
    assert twin.inputs.data_ptr() in {memory.ctypes.data for memory in parcel.memory}
    assert identical([twin.inputs, twin.targets, *twin.test], [data.inputs, data.targets, *data.test])
    assert len(parcel.head) < data.inputs.nbytes


def wide() -> nn.Module:
    """Return a network of 6,627 parameters, which outweigh the numbers that go with an update."""
    return nn.Sequential(nn.Linear(4, 828), nn.ReLU(), nn.Linear(828, 3))


@pytest.mark.parametrize(("method", "vectors"), [(FedAvg(), 0), (FedADMM(), 2)])
def test_clients_of_a_share_add_their_states_to_what_passes_the_driver_and_nothing_as_long(
    method: Algorithm, vectors: int, here: RayHere
) -> None:
    received, sent = {}, {}
    for num_clients in (6, 30):
        options = {"data": some_data([8] * num_clients), "participation": 1.0, "local": LocalTraining(epochs=1)}
        run = ray_run(method, model=made(wide), workers=2, **options)
        run.advance()
        before = here.bytes_received, here.bytes_sent
        run.advance()
        received[num_clients], sent[num_clients] = here.bytes_received - before[0], here.bytes_sent - before[1]
        run.close()
    # Of each further client: its state, w and y, which goes to the store, and some numbers. A share brings one mean.
    assert 0 <= (received[30] - received[6]) / 24 - vectors * 4 * run.theta.numel() < 1000
    assert 0 <= (sent[30] - sent[6]) / 24 < 1000
    assert received[6] > 2 * 4 * run.theta.numel()
