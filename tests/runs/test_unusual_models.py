"""Models that do with buffers, constants and chance what torch lets them: the same bytes on every engine."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import weight_norm

import fedadmm
from fedadmm import FastFedADMM, FedAvg, InputError, LocalTraining, Simulation
from fedadmm.core.state_parts import Personal, without_part
from worlds import made, some_data

DATA = some_data([8, 10, 6, 12, 8])


def played(model: Any, *, rounds: int = 3, algorithm: Any = None, **options: Any) -> Simulation:
    """Return five clients' run."""
    local = LocalTraining(**{"epochs": 2, "batch_size": 4, "learning_rate": 0.1} | options.pop("local", {}))
    usual = {"data": DATA, "local": local, "participation": 0.6, "seed": 0, "engine": "serial"}
    module = made(model) if isinstance(model, type) else model
    simulation = Simulation(algorithm or FedAvg(), model=module, **usual | options)
    for _ in range(rounds):
        simulation.advance()
    simulation.close()
    return simulation


class Smoothed(nn.Module):
    """A network whose forward moves a running mean in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs)
        if self.training:
            self.track(hidden.detach().mean(0))
        return self.last((hidden - self.mean).relu())

    def track(self, mean: torch.Tensor) -> None:
        self.mean.mul_(0.9).add_(0.1 * mean)


class SmoothedAnew(Smoothed):
    """The same, which puts a new tensor in the place of its buffer."""

    def track(self, mean: torch.Tensor) -> None:
        self.mean = 0.9 * self.mean + 0.1 * mean


class SmoothedWrongly(Smoothed):
    def track(self, mean: torch.Tensor) -> None:
        self.mean = mean.sum()


@pytest.mark.parametrize("personal", [None, ["mean", "last.*"]], ids=["shared", "personal"])
def test_a_buffer_may_be_another_tensor_after_a_forward(personal: Any) -> None:
    options: dict[str, Any] = {"personal": personal}
    if personal is not None:
        options["data"] = fedadmm.federate(
            fedadmm.make_dataset((DATA.inputs, DATA.targets)), num_clients=5, partition="iid", client_test=0.3, seed=0
        )
    expected = played(Smoothed, **options)
    found = played(SmoothedAnew, **options)
    assert torch.equal(found.theta, expected.theta)
    assert torch.equal(found.checkpoint.buffers.floats, expected.checkpoint.buffers.floats)
    if personal is None:
        assert found.checkpoint.buffers.floats.abs().max() > 0.01
    with pytest.raises(
        InputError, match=r"the model's buffer mean was \(6,\) of torch.float32, and its forward made it"
    ):
        played(SmoothedWrongly, **options)


@pytest.mark.slow
def test_a_buffer_that_is_replaced_has_the_same_bytes_with_any_number_of_workers() -> None:
    serial, workers = played(SmoothedAnew), played(SmoothedAnew, engine="workers", workers=2)
    assert torch.equal(workers.theta, serial.theta)
    assert torch.equal(workers.checkpoint.buffers.floats, serial.checkpoint.buffers.floats)


class Rotating(nn.Module):
    """A network with a table of complex numbers, as rotary embeddings have."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.register_buffer("table", torch.polar(torch.ones(2), torch.tensor([0.3, 0.7])))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        turned = torch.view_as_complex(inputs.reshape(-1, 2, 2)) * self.table
        return self.last(torch.view_as_real(turned).reshape(-1, 4))


class RotatingByConstant(Rotating):
    def __init__(self) -> None:
        super().__init__()
        table = self.table
        del self.table
        self.table = table


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_a_complex_buffer_is_carried(engine: str) -> None:
    found, expected = played(Rotating, engine=engine), played(RotatingByConstant, engine=engine)
    torch.testing.assert_close(found.theta, expected.theta)
    torch.testing.assert_close(found.model().table, made(Rotating).table)
    assert found.checkpoint.buffers.floats.numel() == 4


class Masked(nn.Module):
    """A network with an infinite or undefined constant in its head."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.head.register_buffer("mask", torch.tensor([0.0, value]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs).relu())


@pytest.mark.parametrize("value", [float("-inf"), float("nan")])
@pytest.mark.parametrize("personal", [None, ["head.*"]])
def test_a_constant_that_is_not_finite_refuses_nobody(value: float, personal: Any) -> None:
    data = fedadmm.federate(
        fedadmm.make_dataset((DATA.inputs, DATA.targets)), num_clients=5, partition="iid", client_test=0.3, seed=0
    )
    run = played(Masked(value), personal=personal, data=data, rounds=2)
    assert [record.refused for record in run.history] == [(), ()]


class Caching(nn.Module):
    """A network that makes a constant at its first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.scale = nn.Linear(4, 6), nn.Linear(6, 3), None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            self.scale = torch.linspace(0.5, 1.5, 6)
        return self.last(self.first(inputs).relu() * self.scale)


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_a_model_may_keep_a_constant_of_its_first_forward(engine: str) -> None:
    assert played(Caching, engine=engine).history[-1].loss is not None


class Remembering(Caching):
    """A network that keeps its last hidden layer."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.hidden = self.first(inputs)
        return self.last(self.hidden)


def test_a_model_that_keeps_an_output_is_copied_all_the_same() -> None:
    run = played(Remembering, evaluate_every=5, rounds=2)
    assert isinstance(run.model(), Remembering)
    with pytest.warns(FutureWarning):
        normed = weight_norm(nn.Linear(4, 3))
    assert isinstance(played(nn.Sequential(normed)).model(), nn.Sequential)


class Drawing(nn.Module):
    """A network that draws in evaluation too, as a variational autoencoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs)
        return self.last((hidden + torch.randn_like(hidden)).relu())


@pytest.mark.slow
def test_what_is_drawn_in_evaluation_belongs_to_the_seed() -> None:
    runs = [played(Drawing), played(Drawing), played(Drawing, engine="workers", workers=2)]
    assert len({tuple(record.loss for record in run.history) for run in runs}) == 1
    assert played(Drawing, seed=1).history[0].loss != runs[0].history[0].loss
    chance = torch.get_rng_state()
    runs[0].evaluate()
    assert torch.equal(torch.get_rng_state(), chance)


def test_a_look_at_the_gradient_leaves_what_a_client_keeps_as_it_was() -> None:
    class Normed(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    data = fedadmm.federate(
        fedadmm.make_dataset((DATA.inputs, DATA.targets)), num_clients=5, partition="iid", client_test=0.3, seed=0
    )
    kept = []
    for tolerance in (None, 1e-30):  # which is never met
        run = played(Normed, personal=["1.*"], data=data, rounds=1, local={"tolerance": tolerance}, participation=1.0)
        kept.append(without_part(run._store.get(0), Personal)[1])
    assert torch.equal(kept[0].personal, kept[1].personal)
    assert torch.equal(kept[0].personal_integers, kept[1].personal_integers)


def test_what_the_default_measures_leaves_running_statistics_as_they_were() -> None:
    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    local = {"epochs": 1, "batch_size": "full"}
    measured, plain = (
        played(made(normed), algorithm=method, rounds=1, participation=1.0, local=local)
        for method in (FastFedADMM(), FastFedADMM(rho=0.5))
    )
    assert plain.checkpoint.buffers.integers.tolist() == measured.checkpoint.buffers.integers.tolist() == [1]
    assert torch.equal(plain.checkpoint.buffers.floats, measured.checkpoint.buffers.floats)
    tracked = played(made(normed), algorithm=fedadmm.FedSGD(), rounds=1, participation=1.0)
    assert tracked.checkpoint.buffers.integers.tolist() == [1]  # there the gradient is the work itself


def test_a_batch_whose_targets_are_all_ignored_has_no_loss() -> None:
    targets = DATA.targets.clone()
    targets[:8] = torch.tensor([0, 1, 2, 0, -100, -100, -100, -100])  # of client 0
    data = fedadmm.PartitionedData(DATA.inputs, targets, DATA.offsets, DATA.test, 3)
    for local in ({"batch_size": 1, "epochs": 1}, {"solver": "gd"}):
        for algorithm in (FedAvg(), FastFedADMM()):
            run = played(nn.Linear(4, 3), data=data, local=local, algorithm=algorithm, participation=1.0, rounds=2)
            assert all(record.client_loss is not None for record in run.history)
            assert [record.refused for record in run.history] == [(), ()]
