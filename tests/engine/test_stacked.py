"""The stacked engine gives what the serial engine gives, to 1e-5 of the model's norm after 20 rounds in float32."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm import Algorithm, FastFedADMM, FedADMM, FedAvg, FedSGD, InputError, LocalTraining, Scaffold, Simulation
from fedadmm.algorithms.fedadmm import Client, Upload
from fedadmm.core.round import Assignment
from fedadmm.data.federated import PartitionedData
from fedadmm.engine.serial import SerialEngine
from fedadmm.engine.stacked import StackedEngine
from fedadmm.state.memory import MemoryStore
from fedadmm.training import objective
from fedadmm.training.stacked import problem as stack
from methods import ON_NETWORKS, PLAIN, mostly_slow
from play import identical
from quadratics import NO_BUFFERS
from worlds import learning_task, made, some_data

SIZES = [8, 1, 10, 6, 12, 8, 14, 6, 8, 23]  # batches of 6: all of these but 6 and 12 end in a partial one
TOLERANCE = 1e-5  # of the norm of theta

Make = Callable[[], nn.Module]


def softmax_regression() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 5, bias=False), nn.ReLU(), nn.Linear(5, 3))


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(3, 3)
    )


class Shifted(nn.Module):
    """A network that is no sequence, with a constant buffer, a frozen parameter and one that no output depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 3)
        self.frozen = nn.Parameter(torch.tensor([1.0, 2.0, 0.5]), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("shift", torch.tensor([0.1, 0.2, 0.3, 0.4]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x + self.shift) * self.frozen


def simulation(method: Algorithm, engine: str, make: Make = mlp, *, data: Any = None, **options: Any) -> Simulation:
    local = {"epochs": "1..3", "batch_size": 6} | options.pop("local", {})
    settings = {"participation": 0.3, "weighting": "examples", "seed": 3} | options
    data = data if data is not None else some_data(SIZES)
    return Simulation(method, model=made(make), data=data, local=LocalTraining(**local), engine=engine, **settings)


def advanced(run: Simulation, rounds: int) -> Simulation:
    for _ in range(rounds):
        run.advance()
    return run


def assert_agree(method: Algorithm, make: Make = mlp, *, rounds: int = 20, **options: Any) -> None:
    """Play both engines and compare all there is: theta, states, and the records."""
    serial, stacked = (advanced(simulation(method, name, make, **options), rounds) for name in ("serial", "stacked"))
    scale = float(serial.theta.norm())
    assert (stacked.theta - serial.theta).norm() <= TOLERANCE * scale
    assert list(stacked._store) == list(serial._store)
    for client in serial._store:
        for ours, right in zip(stacked._store.get(client), serial._store.get(client), strict=True):
            assert type(ours) is type(right)
            ours, right = torch.as_tensor(ours), torch.as_tensor(right)
            assert (ours - right).norm() <= TOLERANCE * max(scale, float(right.norm()))
    for ours, right in zip(stacked.history, serial.history, strict=True):
        for name in ("clients", "refused", "steps", "gradient_evaluations", "bytes_up", "bytes_down"):
            assert getattr(ours, name) == getattr(right, name)
        assert ours.client_loss == pytest.approx(right.client_loss, rel=1e-4)


@pytest.mark.parametrize("name", mostly_slow(ON_NETWORKS, plain=["fedadmm", "scaffold"]))
def test_stacked_agrees_with_serial(name: str) -> None:
    assert_agree(ON_NETWORKS[name], mlp, rounds=20 if name in PLAIN else 5, weighting="examples")


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_so_it_does_on_another_model_with_equal_weights(name: str) -> None:
    assert_agree(ON_NETWORKS[name], softmax_regression, weighting="equal")


@pytest.mark.parametrize("make", [convolution, Shifted])
@pytest.mark.parametrize("method", [FedADMM(rho=0.5), Scaffold(), FedSGD()])
def test_any_network_without_chance_and_statistics_can_be_stacked(make: Make, method: Algorithm) -> None:
    assert_agree(method, make, rounds=5)


class BiggerStepsOfLaterClients(FedAvg):
    """A method that asks who the client is."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, client = super().client_update(server, client, problem)
        return upload._replace(step=upload.step * (1 + problem.client / 10)), client


class DoubleStepsOfLaterClients(FedAvg):
    """One that asks in a way that a stack cannot answer."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, client = super().client_update(server, client, problem)
        return upload._replace(step=upload.step * (2 if problem.client >= 5 else 1)), client


def test_a_method_may_ask_who_the_client_is() -> None:
    assert_agree(BiggerStepsOfLaterClients(), rounds=3)
    with pytest.raises(InputError, match="cannot run on a stack of clients"):
        simulation(DoubleStepsOfLaterClients(), "stacked")
    assert not isinstance(simulation(DoubleStepsOfLaterClients(), "auto")._engine, StackedEngine)


@pytest.mark.parametrize("method", [FedSGD(), FastFedADMM()])
def test_a_gradient_over_several_chunks_is_one_step_with_one_loss(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    records = {}
    for size in (1000, 5):
        for module in (objective, stack):
            monkeypatch.setattr(module, "CHUNK", size)
        assert_agree(method, rounds=2, participation=1.0)
        records[size] = advanced(simulation(method, "serial", participation=1.0), 2).history
    for chunked, whole in zip(records[5], records[1000], strict=True):
        assert chunked.steps == whole.steps
        assert chunked.client_loss == pytest.approx(whole.client_loss, rel=1e-5)


@pytest.mark.parametrize("batch_size", ["full", 1, 5, 100])
@pytest.mark.parametrize("method", [FedADMM(rho=0.5), pytest.param(FedAvg(), marks=pytest.mark.slow)])
def test_batches_may_be_of_any_size(batch_size: Any, method: Algorithm) -> None:
    assert_agree(method, rounds=3, local={"batch_size": batch_size}, participation=1.0)


@dataclass(frozen=True)
class OwnRho(FedADMM):
    """FedADMM with a rho that grows with a client's data: a scalar that differs within a stack."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        rho = 0.02 * problem.num_examples
        w = problem.solve(start=client.w, dual=client.y, rho=rho, centre=server.theta).w
        y = client.y + rho * (w - server.theta)
        return Upload((w + y / rho) - (client.w + client.y / client.rho)), Client(w, y, rho)


@pytest.mark.parametrize(
    ("method", "momentum", "weight_decay"),
    [
        (FedADMM(rho=0.5), 0.5, 0.0),
        (FedADMM(rho=0.5), 0.0, 0.1),
        (FedADMM(rho=0.5), 0.5, 0.1),
        (FedAvg(), 0.5, 0.1),
        (OwnRho(), 0.0, 0.0),
        (OwnRho(), 0.5, 0.1),
    ],
)
def test_momentum_and_weight_decay_are_the_serial_ones(method: Any, momentum: float, weight_decay: float) -> None:
    local = {"momentum": momentum, "weight_decay": weight_decay}
    assert_agree(method, rounds=6, local=local)


@pytest.mark.slow
def test_any_loss_that_is_a_mean_can_be_stacked() -> None:
    def brier(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs.softmax(1) - functional.one_hot(targets, 3)).square().sum(dim=1).mean()

    for make in (mlp, Shifted):
        assert_agree(FedADMM(rho=0.5), make, rounds=5, loss=brier)


def test_data_may_come_client_by_client() -> None:
    class Dealt:
        """Data of which each client's examples are tensors of their own."""

        def __init__(self, data: PartitionedData) -> None:
            self.num_clients, self.num_examples, self.test = data.num_clients, data.num_examples, data.test
            self.num_classes = data.num_classes
            self._own = [type(own)(*(part.clone() for part in own)) for own in map(data.client, range(len(SIZES)))]

        def client(self, client: int) -> Any:
            return self._own[client]

    apart = advanced(simulation(FedADMM(), "stacked", data=Dealt(some_data(SIZES))), 3)
    assert identical(apart.theta, advanced(simulation(FedADMM(), "stacked"), 3).theta)


def wide() -> nn.Module:
    """Return layers whose products are large enough to be shared by threads."""
    return nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 10))


@pytest.mark.slow
@pytest.mark.parametrize("num_clients", [1, 2, 5])
def test_threads_do_not_change_a_bit(num_clients: int, monkeypatch: Any) -> None:
    used: list[int] = []
    set_threads = torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda number: (used.append(number), set_threads(number)))
    thetas = [
        advanced(
            simulation(
                FedADMM(rho=0.5),
                "stacked",
                wide,
                data=some_data([80] * num_clients, features=300),
                workers=workers,
                participation=1.0,
                local={"batch_size": 40},
            ),
            2,
        ).theta
        for workers in (1, 2, 3)
    ]
    assert min(3, num_clients) in used
    assert identical(thetas[0], thetas[1])
    assert identical(thetas[0], thetas[2])


def test_a_small_batch_has_one_thread(monkeypatch: Any) -> None:
    # On a busy machine two threads took 25 times the processor time of one over softmax regression on digits.
    used: list[int] = []
    problem = simulation(FedAvg(), "stacked", workers=2).task.stack([Assignment(0, 1, 1)] * 2, buffers=NO_BUFFERS)
    batch = stack.Batch(2, torch.empty(2, 6, 4), torch.empty(2, 6), torch.empty(2, 6))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    examples = -(-stack.THREADED_FROM // problem._model.weights.numel() // 2)
    large = batch._replace(shares=torch.empty(2, examples))
    for _ in problem._threaded(iter([batch, large])):
        pass
    assert used == [1, 2, 2]  # the last is the usual number again


def weight_of(client: int) -> float:
    """Return unequal weights."""
    return 1.0 + client


class Engines(NamedTuple):
    serial: SerialEngine
    stacked: StackedEngine
    store: MemoryStore
    task: Any

    @classmethod
    def of(cls, method: Algorithm, **local: Any) -> "Engines":
        task, store = learning_task(made(mlp), some_data(SIZES), **local), MemoryStore()
        arguments = (method, task, store)
        initial = task.model.weights.clone()
        return cls(
            SerialEngine(*arguments, initial=initial),
            StackedEngine(*arguments, initial=initial, weight=weight_of),
            store,
            task,
        )

    def visits(self, method: Algorithm, assignments: list[Assignment]) -> list[list[Any]]:
        download = method.download(method.init_server(self.task.model.weights.clone()))
        options = {"buffers": self.task.buffers(), "assignments": assignments}
        return [list(engine.run(download, **options)) for engine in (self.serial, self.stacked)]


SHUFFLED = [Assignment(client, 1, 1 + client % 3) for client in (3, 9, 1, 0, 7, 2)]


@pytest.mark.parametrize("method", [FedADMM(), FedSGD()])
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_each_client_answers_as_it_does_alone_in_the_order_asked(method: Any, limit: int, monkeypatch: Any) -> None:
    engines = Engines.of(method)
    monkeypatch.setattr(engines.task, "stack_size", lambda assignments: limit)
    for module in (objective, stack):
        monkeypatch.setattr(module, "CHUNK", 5)  # FedSGD's gradients are then summed over parts
    serial, stacked = engines.visits(method, SHUFFLED)
    uploads = {visit.client: visit.upload[0] for visit in serial}
    for right, ours in zip(serial, stacked, strict=True):
        assert (ours.client, ours.first_visit, ours.finite) == (right.client, True, True)
        assert ours.stats[:2] == right.stats[:2]  # steps and gradients, to the number
        assert ours.stats.loss == pytest.approx(right.stats.loss, rel=1e-5)
        if ours.mean_of:
            mean = sum(weight_of(c) * uploads[c] for c in ours.mean_of) / sum(map(weight_of, ours.mean_of))
            torch.testing.assert_close(ours.upload[0], mean, rtol=1e-4, atol=1e-6)
    assert sorted(client for visit in stacked for client in visit.mean_of) == sorted(uploads)
    assert [visit.client for visit in engines.visits(method, SHUFFLED)[1]] == [3, 9, 1, 0, 7, 2]


def test_a_round_of_nobody_has_no_visits() -> None:
    assert Engines.of(FedAvg()).visits(FedAvg(), []) == [[], []]


def test_a_stack_takes_bounded_memory() -> None:
    # 16 x 4 bytes x 1,000 parameters are 64,000; two copies of 60 examples 48,000; 5 epochs x 60 places x 24 7,200.
    size = stack.stack_size(torch.tensor([10, 60]).numpy(), epochs=5, num_parameters=1000, example_bytes=400)
    assert size == (1 << 28) // (64_000 + 48_000 + 7_200)
    assert stack.stack_size(torch.tensor([60]).numpy(), epochs=1, num_parameters=10**9, example_bytes=1) == 1


def test_a_state_in_memory_does_not_keep_the_stack_that_it_was_a_row_of() -> None:
    run = advanced(simulation(FedADMM(), "stacked"), 2)
    vectors = [field for client in run._store for field in run._store.get(client)[:2]]
    assert all(vector.untyped_storage().nbytes() == vector.nbytes for vector in vectors)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedadmm, rho rising"])
def test_the_same_run_twice_gives_the_same_bytes(name: str) -> None:
    one, other = (advanced(simulation(ON_NETWORKS[name], "stacked"), 4) for _ in range(2))
    assert identical(tuple(one.checkpoint), tuple(other.checkpoint))


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedadmm, rho rising", "feddyn"])
def test_a_refused_client_of_a_stack_was_not_selected(name: str) -> None:
    method, data, sick = ON_NETWORKS[name], some_data(SIZES), 4
    refusing, without = (
        advanced(simulation(method, "stacked", data=data, participation=lambda r, g, d, ids=ids: ids[r > 1]), 1)
        for ids in ((range(10), range(10)), (range(10), [c for c in range(10) if c != sick]))
    )
    before = refusing._store.get(sick)
    data.client(sick).inputs.fill_(torch.nan)
    summary, expected = refusing.advance(), without.advance()
    assert (summary.clients, summary.refused) == (expected.clients, (sick,))
    assert identical(refusing._store.get(sick), before)
    assert refusing.checkpoint.seen == without.checkpoint.seen
    torch.testing.assert_close(refusing.theta, without.theta, rtol=1e-5, atol=1e-6)
    for client in without._store:
        torch.testing.assert_close(
            tuple(refusing._store.get(client)), tuple(without._store.get(client)), rtol=1e-4, atol=1e-6
        )
