"""A network meets its data: what does not fit is said before anything runs; what fits is evaluated rightly."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm import FedAvg, Simulation
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment
from fedadmm.data import federate, make_dataset
from fedadmm.data.examples import Examples
from fedadmm.training import evaluation
from fedadmm.training.evaluation import accuracy, batches, combined, metrics_for, score
from fedadmm.training.flat import FlatModel
from fedadmm.training.local import LocalTraining
from fedadmm.training.task import LearningTask
from worlds import learning_task, made, network, some_data


class Returning(nn.Module):
    """A model that returns what a function makes of its outputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 3), function

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.function(self.layer(inputs))


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Linear(5, 3), r"the model does not take inputs of shape \(2, 4\): mat1 and mat2"),
        (Returning(lambda o: o.sum()), r"the model returns \(\) for inputs of shape \(2, 4\); return one row per"),
        (Returning(lambda o: (o, o)), r"the loss does not take .* \(\(2, 3\), \(2, 3\)\) and \(2,\): .* not tuple"),
        (Returning(lambda o: o[:1]), r"the model returns \(1, 3\) for inputs"),
        (Returning(lambda o: o[:, :, None]), r"the loss does not take .outputs, targets. of shapes \(2, 3, 1\)"),
        (nn.Linear(4, 1), "returns 1 scores for an example, and the data has 3 classes; give its last layer 3 outputs"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(module: nn.Module, sentence: str) -> None:
    data = some_data([8, 8])
    data.targets[:2] = torch.tensor([2, 1])  # so that too few classes show in the first two examples
    with pytest.raises(InputError, match=sentence):
        learning_task(module, data)


def test_a_loss_of_many_numbers_is_refused() -> None:
    def each(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(outputs, targets, reduction="none")

    with pytest.raises(InputError, match="the loss returns 2 numbers; return the mean over the examples"):
        LearningTask(nn.Linear(4, 3), some_data([8]), local=LocalTraining(), loss=each, metrics={}, seed=0)


def test_trying_a_model_out_changes_neither_its_buffers_nor_its_mode() -> None:
    module = made(network)
    task = learning_task(module, some_data([8]))
    assert task.model.buffers().integers.tolist() == [0]
    assert module.training


def test_batch_normalisation_cannot_train_on_one_example_and_says_so() -> None:
    data = some_data([8, 1, 1])
    with pytest.raises(InputError) as caught:
        learning_task(made(network), data, batch_size=3).check_batches()
    assert str(caught.value) == (
        "client 1 has 1 example, as has 1 other, and batch normalisation cannot train on one; give each client at "
        "least 2, by fewer clients or another partition, or let the model have nn.GroupNorm(1, channels) in its place"
    )
    with pytest.raises(InputError, match="batch_size=1, and batch normalisation cannot train on one example; use at"):
        learning_task(made(network), some_data([8]), batch_size=1).check_batches()
    # What the sentence says to do works.
    other = nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(1, 6), nn.Linear(6, 3))
    for task in (learning_task(other, data, batch_size=1), learning_task(made(network), some_data([8, 2]))):
        task.check_batches()
        problem = task.problem(Assignment(1, 1, 1), buffers=task.model.buffers())
        assert problem.solve(start=task.model.weights.clone()).num_steps == 1


def test_normalisation_over_one_value_of_a_later_example_is_said_too() -> None:
    task = learning_task(nn.Sequential(nn.GroupNorm(4, 4), nn.Linear(4, 3)), some_data([8, 1]))
    problem = task.problem(Assignment(1, 1, 1), buffers=task.model.buffers())
    with pytest.raises(InputError, match=r"client 1 has a batch of inputs \(1, 4\), on which normalisation cannot"):
        problem.solve(start=task.model.weights.clone())


def test_another_error_of_the_model_in_training_is_its_own() -> None:
    class Stubborn(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if self.training:
                raise ValueError("not today")
            return super().forward(inputs)

    task = learning_task(Stubborn(4, 3), some_data([8]))
    problem = task.problem(Assignment(0, 1, 1), buffers=task.model.buffers())
    with pytest.raises(ValueError, match="not today"):
        problem.solve(start=task.model.weights.clone())


def test_an_evaluation_is_the_mean_over_examples_however_they_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made(network).eval()
    inputs, targets = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3
    outputs = module(inputs).detach()
    expected = {
        "loss": float(functional.cross_entropy(outputs, targets)),
        "accuracy": float((outputs.argmax(dim=1) == targets).double().mean()),
    }
    for size, num_parts in ((1000, 1), (4, 3)):  # whole, and in parts of 4, 4 and 2
        monkeypatch.setattr(evaluation, "BATCH", size)
        parts = batches(Examples(inputs, targets))
        assert len(parts) == num_parts
        for metric in (accuracy, lambda *pair: accuracy(*pair)):  # ours, and a user's
            metrics = metrics_for(outputs, targets, loss=functional.cross_entropy, metrics={"accuracy": metric})
            scores = score(FlatModel(module), parts, loss=functional.cross_entropy, metrics=metrics)
            assert combined([scores]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_an_evaluation_leaves_the_mode_and_the_buffers_as_they_were(training: bool) -> None:
    module = made(network).train(training)
    before = [buffer.clone() for buffer in module.buffers()]
    examples = Examples(torch.randn(6, 4), torch.arange(6) % 3)
    score(FlatModel(module), [examples], loss=functional.cross_entropy, metrics={})
    assert module.training is training
    assert all(map(torch.equal, module.buffers(), before))


def test_an_evaluation_is_of_the_theta_and_the_buffers_that_it_is_given() -> None:
    task = learning_task(made(network), some_data([8, 8]))
    theta, buffers = task.model.weights.clone(), task.model.buffers()
    usual = task.evaluate_client(0, theta, buffers=buffers)
    task.model.load(torch.zeros_like(theta))  # whatever was trained in between
    moved = buffers._replace(floats=buffers.floats + 1.0)
    assert task.evaluate_client(0, theta, buffers=moved)["loss"] != usual["loss"]
    assert task.evaluate_client(0, theta + 1.0, buffers=buffers)["loss"] != usual["loss"]
    assert task.evaluate_client(0, theta, buffers=buffers) == usual


def test_a_task_without_test_examples_has_nothing_to_evaluate() -> None:
    data = some_data([8])
    assert learning_task(made(network), data).num_parts == 1
    without = type(data)(data.inputs, data.targets, data.offsets, None, 3)
    assert learning_task(made(network), without).num_parts == 0
    assert combined([]) == {}


@pytest.mark.parametrize(("model", "num_parts"), [("mlp", 1), ("small_cnn", 3)])
def test_convolutions_are_evaluated_in_smaller_batches_with_the_same_scores(model: str, num_parts: int) -> None:
    inputs, targets = torch.rand(600, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(600) % 10
    data = federate(make_dataset((inputs, targets), test=(inputs, targets)), num_clients=2, partition="iid", seed=0)
    local: Any = {"local": LocalTraining(epochs=1), "participation": 1.0, "seed": 0, "engine": "serial"}
    run = Simulation(FedAvg(), model=model, data=data, **local)
    assert run.task.num_parts == num_parts
    outputs = run.model().eval()(inputs).detach()
    expected = float(functional.cross_entropy(outputs, targets)), float((outputs.argmax(1) == targets).double().mean())
    assert tuple(run.evaluate().values()) == pytest.approx(expected, rel=1e-6)
