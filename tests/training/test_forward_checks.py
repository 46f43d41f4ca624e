"""What a forward does beside returning outputs: it trains as in a plain loop, or is refused with the remedy."""

import logging
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedadmm
from fedadmm import FedAvg, InputError, LocalTraining, Simulation
from fedadmm.data.examples import joined_rows, num_rows
from worlds import made, some_data

DATA = some_data([8, 10, 6])


def played(model: Any, *, data: Any = DATA, rounds: int = 2, **options: Any) -> Simulation:
    local = LocalTraining(**{"epochs": 2, "batch_size": 4, "learning_rate": 0.1} | options.pop("local", {}))
    usual = {"participation": 1.0, "seed": 0, "engine": "serial"}
    module = made(model) if isinstance(model, type) else model
    run = Simulation(FedAvg(), model=module, data=data, local=local, **usual | options)
    for _ in range(rounds):
        run.advance()
    run.close()
    return run


class Scaled(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(self.scaled(inputs))

    def scaled(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * 2 - 1


class ScaledInPlace(Scaled):
    def scaled(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.mul_(2).sub_(1)


@pytest.mark.parametrize("batch_size", [4, "full"])
@pytest.mark.parametrize("solver", ["sgd", "gd"])
def test_a_forward_that_works_in_place_leaves_the_data_alone(batch_size: Any, solver: str) -> None:
    before = DATA.inputs.clone(), DATA.test.inputs.clone()
    local = {"batch_size": batch_size} if solver == "sgd" else {"solver": "gd"}
    found, expected = played(ScaledInPlace, local=local), played(Scaled, local=local)
    assert torch.equal(DATA.inputs, before[0])
    assert torch.equal(DATA.test.inputs, before[1])
    assert torch.equal(found.theta, expected.theta)
    assert [record.loss for record in found.history] == [record.loss for record in expected.history]
    with pytest.raises(InputError, match="the model changes the inputs that it is given, so it cannot be stacked"):
        played(ScaledInPlace, engine="stacked")


class Constrained(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.weight.data = torch.renorm(self.weight.data, 2, 0, 0.5)
        return super().forward(inputs)


class ConstrainedInPlace(Constrained):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.weight.data.copy_(torch.renorm(self.weight.data, 2, 0, 0.5))
        return nn.Linear.forward(self, inputs)


class Growing(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)
        self.more = None
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 2:
            self.more = nn.Linear(3, 3)
        return super().forward(inputs)


class Teaching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.teacher = nn.Linear(4, 3), nn.Linear(4, 3).requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.teacher.weight.lerp_(self.own.weight.detach(), 0.1)
        return self.own(inputs) + self.teacher(inputs)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Constrained, r"puts another tensor in the place of weight, .*write into .*weight\.data\.copy_"),
        (Growing, r"the model's forward makes or drops parameters \(more\.bias\); make all of them in __init__"),
        (Teaching, "the model's forward changes parameter teacher.weight, which is not trained, .*make it a buffer"),
    ],
)
def test_a_forward_that_training_would_not_reach_is_refused(model: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        played(model)


def test_a_forward_that_writes_into_its_parameters_trains() -> None:
    run = played(ConstrainedInPlace)
    assert not torch.equal(run.theta, played(ConstrainedInPlace, rounds=1).theta)
    torch.testing.assert_close(run.model().weight.flatten(), run.theta[:12])


class Counting(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)
        self.steps, self.own = 0, torch.Generator().manual_seed(0)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return super().forward(inputs) + 0.1 * torch.randn(3, generator=self.own)


def test_what_a_forward_remembers_outside_its_buffers_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        played(Counting)
    (said,) = [record.message for record in caplog.records if "no buffer" in record.message]
    assert said.startswith("the model's forward changes own, steps, which is no buffer")


class Noisy(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        noise = random.random() + np.random.rand()  # noqa: NPY002
        return super().forward(inputs) * (1 + 0.1 * noise)


@pytest.mark.slow
def test_what_numpy_and_random_draw_belongs_to_the_seed() -> None:
    runs = [played(Noisy), played(Noisy), played(Noisy, engine="workers", workers=2)]
    assert all(torch.equal(run.theta, runs[0].theta) for run in runs)
    assert len({tuple(record.loss for record in run.history) for run in runs}) == 1


class Viewing(nn.Module):
    """A network that makes a view of what its convolution returns, as in many a tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 3), nn.Linear(4 * 4 * 4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs).relu()
        return self.last(hidden.view(hidden.size(0), -1))


class Reshaping(Viewing):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(inputs).relu().flatten(1))


def test_a_view_of_images_is_no_mistake() -> None:
    images = torch.randn(24, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    data = fedadmm.PartitionedData(images, DATA.targets, DATA.offsets, None, 3)
    found, expected = played(Viewing, data=data), played(Reshaping, data=data)
    assert found.task.model.keeps_order
    assert not expected.task.model.keeps_order  # and so it is faster
    torch.testing.assert_close(found.theta, expected.theta)


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    centres, model = nn.Parameter(torch.zeros(3)), nn.Linear(4, 3)
    with pytest.raises(
        InputError, match="the loss depends on parameters that no client trains; move them into the model"
    ):
        played(model, loss=lambda outputs, targets: functional.cross_entropy(outputs + centres, targets))
    with pytest.raises(InputError, match="the loss depends on parameters that no client trains"):
        played(model, loss=lambda o, t: functional.cross_entropy(o, t) + model.weight.square().sum())


def test_boxes_of_images_are_counted_by_image_and_joined_as_lists() -> None:
    targets = [{"boxes": torch.ones(5, 4)}, {"boxes": torch.ones(1, 4)}]
    assert num_rows(targets) == 2
    assert num_rows([torch.ones(5, 4), torch.ones(1, 4)]) == 2
    assert num_rows([torch.ones(7, 4), torch.ones(7, 1)]) == 7  # two tensors with a row for each example
    assert joined_rows([targets, targets[:1]]) == [*targets, *targets[:1]]
    outputs = joined_rows([{"loss": torch.tensor(1.0), "scores": torch.ones(2, 3)}] * 2)
    assert (outputs["loss"].shape, outputs["scores"].shape) == ((2,), (4, 3))
    with pytest.raises(
        InputError, match=r"batches of shapes \(2, 3\) and others cannot be joined for a metric, .*pad all"
    ):
        joined_rows([torch.ones(2, 3), torch.ones(2, 4)])


def test_a_column_of_a_tensor_is_data_like_any_other() -> None:
    table = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    parts = table[:, :4], table[:, 4:]
    settings: dict[str, Any] = {"loss": functional.mse_loss, "rounds": 2, "progress": False, "participation": 1.0}
    results = [
        fedadmm.simulate(
            FedAvg(),
            model=lambda input_shape, num_classes: nn.Linear(4, 1),
            data=fedadmm.federate(fedadmm.make_dataset(some, some), num_clients=4, partition="iid", seed=0),
            **settings,
        )
        for some in (parts, tuple(part.contiguous() for part in parts))
    ]
    assert torch.equal(results[0].theta, results[1].theta)


def test_an_expanded_buffer_is_a_buffer() -> None:
    class Masked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.register_buffer("mask", torch.tril(torch.ones(3, 3)).expand(2, 3, 3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) @ self.mask[0]

    run = played(Masked)
    assert torch.equal(run.model().mask, torch.tril(torch.ones(3, 3)).expand(2, 3, 3))


def test_training_goes_on_where_gradients_are_switched_off() -> None:
    expected = played(Scaled)
    with torch.no_grad():
        assert torch.equal(played(Scaled).theta, expected.theta)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (lambda: (torch.eye(4).to_sparse(), torch.zeros(4)), r"inputs are sparse .*; give inputs\.to_dense\(\)"),
        (lambda: (torch.ones(4, 2, dtype=torch.cfloat), torch.zeros(4)), "inputs are complex numbers; give torch.view"),
        (
            lambda: ({"x": torch.tensor([[1.0], [float("nan")]])}, torch.zeros(2)),
            "example 1 holds a NaN or an infinity; clean the data",
        ),
    ],
)
def test_data_that_cannot_be_learned_from_is_a_sentence(data: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fedadmm.make_dataset(data())


class Paths(torch.utils.data.Dataset[Any]):
    """A dataset whose attribute `targets` has no numbers."""

    def __init__(self, targets: list[Any]) -> None:
        self.targets = targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> Any:
        return torch.full((4,), float(row)), row % 3


@pytest.mark.parametrize("targets", [["a.png"] * 8, [[1] * (1 + row % 3) for row in range(8)], [{"boxes": 1}] * 8])
def test_targets_that_are_no_numbers_deal_nothing(targets: list[Any]) -> None:
    dataset = fedadmm.make_dataset(Paths(targets), lazy=True)
    assert played(nn.Linear(4, 3), data=fedadmm.federate(dataset, num_clients=2, partition="iid", seed=0), rounds=1)
