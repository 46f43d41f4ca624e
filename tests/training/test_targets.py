"""Targets of any shape: what is refused, and that each score is what its name says."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import fedadmm
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment
from fedadmm.data import federate, make_dataset
from fedadmm.runs.simulation import Simulation
from fedadmm.training import evaluation, objective


def simulation(model: nn.Module, train: Any, *, test: Any = None, **options: Any) -> Simulation:
    """Return a run of one client with all training examples."""
    data = federate(make_dataset(train, test), num_clients=1, partition="iid", seed=0)
    local = fedadmm.LocalTraining(batch_size="full", learning_rate=0.1)
    settings = {"participation": 1.0, "seed": 0, "local": local, "engine": "serial", **options}
    return Simulation(fedadmm.FedAvg(), model=model, data=data, **settings)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def squared_gaps(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs - targets) ** 2).mean()


@pytest.mark.parametrize("loss", [functional.mse_loss, functional.l1_loss, squared_gaps, evaluation.least_squares])
@pytest.mark.parametrize(("model", "column"), [(nn.Linear(3, 1), False), (nn.Flatten(0), True)])
def test_a_loss_that_would_broadcast_is_refused_with_both_shapes(loss, model, column):
    inputs, targets = numbers(6, 3) if not column else numbers(6), numbers(6)
    model = nn.Sequential(model) if not column else nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 1), model)
    shapes = (r"\[example, 1\], targets \[example\]", r"\[example\], targets \[example, 1\]")[column]
    with pytest.raises(InputError, match=rf"outputs have shape {shapes}; give both the same shape"):
        simulation(model, (inputs, targets[:, None] if column else targets), loss=loss)


@pytest.mark.parametrize("loss", [functional.smooth_l1_loss, functional.mse_loss])
def test_one_output_for_a_target_of_several_numbers_is_refused_where_torch_warns_of_it(loss):
    with pytest.raises(
        InputError, match=r"outputs of shape \[example, 1\] with targets of shape \[example, 3\]; give the"
    ):
        simulation(nn.Linear(4, 1), (numbers(6, 4), numbers(6, 3)), loss=loss)


def test_several_outputs_for_a_target_of_one_number_may_be_meant():
    with warnings.catch_warnings(action="ignore"):  # torch's, in training
        simulation(nn.Linear(4, 3), (numbers(6, 4), numbers(6, 1)), loss=functional.smooth_l1_loss).advance()


def test_a_loss_that_takes_a_column_and_a_row_is_not_refused():
    def squeezed(outputs, targets):
        return functional.mse_loss(outputs.squeeze(1), targets)

    pair = numbers(6, 3), numbers(6)
    for train, loss in ((pair, squeezed), ((pair[0], pair[1][:, None]), functional.mse_loss)):
        run = simulation(nn.Linear(3, 1), train, loss=loss)
        before = run.evaluate_clients("loss").mean
        for _ in range(5):
            run.advance()
        assert run.evaluate_clients("loss").mean < before / 1.5


@pytest.mark.parametrize(
    ("targets", "model", "loss", "has_accuracy"),
    [
        (torch.arange(6) % 2, nn.Linear(3, 2), functional.cross_entropy, True),
        (torch.arange(24).view(6, 4) % 2, nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4))), None, True),
        (torch.arange(24).view(6, 4) % 2 * 1.0, nn.Linear(3, 4), functional.binary_cross_entropy_with_logits, False),
        (numbers(6, 4).softmax(dim=1), nn.Linear(3, 4), functional.cross_entropy, False),
        (torch.arange(6)[:, None], nn.Linear(3, 1), functional.poisson_nll_loss, False),
        (torch.arange(24).view(6, 4), nn.Linear(3, 4), functional.poisson_nll_loss, False),
    ],
)
def test_the_accuracy_is_there_where_outputs_are_scores_of_classes_and_nowhere_else(targets, model, loss, has_accuracy):
    run = simulation(model, (numbers(6, 3), targets), loss=loss or functional.cross_entropy)
    assert run.task.scored == (("loss", "accuracy") if has_accuracy else ("loss",))
    assert run.advance().refused == ()


@pytest.mark.parametrize("kind", ["tensors", "lazy", "dict"])
@pytest.mark.parametrize(
    ("targets", "outputs", "remedy"),
    [
        (numbers(6, 2), 2, r'loss=torch.nn.functional.mse_loss \(in a file: model.loss = "mse_loss"\)$'),
        (numbers(6), 1, "mse_loss"),
        (numbers(6, 1), 1, "mse_loss"),
        (numbers(6, 3).softmax(dim=1) * 1.1, 3, "mse_loss"),
        (torch.tensor([[1.0, 1, 0]] * 6), 3, "loss=torch.nn.functional.binary_cross_entropy_with_logits"),
        (torch.arange(6.0) % 3, 3, r"give classes as whole numbers, targets.long\(\)$"),
    ],
)
def test_numbers_are_no_targets_of_a_cross_entropy_which_would_train_on_them(kind, targets, outputs, remedy):
    inputs = numbers(6, 3)
    data = {"tensors": (inputs, targets), "lazy": TensorDataset(inputs, targets), "dict": ({"input": inputs}, targets)}
    dealt = federate(make_dataset(data[kind], lazy=kind == "lazy"), num_clients=2, partition="iid", seed=0)
    settings = {"model": nn.Linear(3, outputs), "data": dealt, "rounds": 1, "participation": 1.0, "engine": "serial"}
    smooth = partial(functional.cross_entropy, label_smoothing=0.1)
    for loss in (functional.cross_entropy, nn.CrossEntropyLoss(), smooth):
        with pytest.raises(InputError, match=f"targets are numbers, such as .* the loss is cross_entropy, .*{remedy}"):
            fedadmm.simulate(fedadmm.FedAvg(), loss=loss, **settings)


def test_one_target_that_is_no_distribution_is_found_among_others_that_are():
    targets = numbers(6, 3).softmax(dim=1).bfloat16().float()  # their sums are 1 up to what was rounded
    simulation(nn.Linear(3, 3), (numbers(6, 3), targets))
    targets[4] = torch.tensor([-0.5, 1.0, 0.5])
    with pytest.raises(InputError, match=r"such as \[-0.5, 1, 0.5\], and the loss is cross_entropy"):
        simulation(nn.Linear(3, 3), (numbers(6, 3), targets))


def test_scores_and_gradients_are_means_over_the_targets_that_count_however_they_are_divided(monkeypatch):
    # 10 examples of 3 places; the last two examples have all but one of their places left out.
    targets = torch.arange(30).view(10, 3) % 4
    targets[8:, 1:] = -1
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    module, inputs = nn.Sequential(nn.Linear(5, 12), nn.Unflatten(1, (4, 3))), numbers(10, 5)
    data = make_dataset((inputs, targets.where(targets >= 0, -100)), (inputs, targets.where(targets >= 0, -100)))
    for loss in (
        functional.cross_entropy,
        nn.CrossEntropyLoss(weight=weights),
        partial(functional.cross_entropy, weight=weights),
    ):
        monkeypatch.setattr(evaluation, "BATCH", 1000)
        expected = loss(module(inputs), data.test.targets)
        expected_gradient = torch.cat([g.flatten() for g in torch.autograd.grad(expected, list(module.parameters()))])
        right = (module(inputs).argmax(dim=1) == data.test.targets)[data.test.targets >= 0].double().mean()
        monkeypatch.setattr(evaluation, "BATCH", 4)
        monkeypatch.setattr(objective, "CHUNK", 4)
        run = simulation(module, data.train, test=data.test, loss=loss)
        assert run.task.num_parts == 3
        found = run.evaluate()
        assert found["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
        assert found["accuracy"] == pytest.approx(float(right), rel=1e-9)
        problem = run.task.problem(Assignment(client=0, round=1, epochs=1), buffers=run.task.buffers())
        assert torch.allclose(problem.gradient(run.theta), expected_gradient, atol=1e-6)


def test_a_stack_refuses_targets_that_count_for_nothing_and_auto_takes_workers():
    targets = torch.arange(10) % 3
    targets[9] = -100
    train = numbers(10, 3), targets
    with pytest.raises(InputError, match="a stack runs losses that ignore or weigh no targets"):
        simulation(nn.Linear(3, 3), train, engine="stacked")
    with pytest.raises(InputError, match="a stack runs losses that ignore or weigh no targets"):
        simulation(nn.Linear(3, 3), (train[0][:9], targets[:9]), engine="stacked",
                   loss=nn.CrossEntropyLoss(weight=torch.ones(3)))  # fmt: skip
    assert simulation(nn.Linear(3, 3), train, engine="auto").engine.name == "workers"


def test_many_targets_an_example_are_stacked_as_they_are_on_one_client():
    targets = torch.arange(24).view(6, 4) % 2
    for values, loss in ((targets, functional.cross_entropy), (targets * 1.0, functional.mse_loss)):
        model = nn.Sequential(
            nn.Linear(3, 8), nn.Unflatten(1, (2, 4)) if loss is not functional.mse_loss else nn.Linear(8, 4)
        )
        found = []
        for engine in ("serial", "stacked"):
            run = simulation(model, (numbers(6, 3), values), loss=loss, engine=engine)
            run.advance()
            found.append(run.theta)
        assert torch.allclose(*found, atol=1e-6)


def test_another_index_to_ignore_is_ignored_by_the_accuracy_too():
    inputs, targets = numbers(9, 3), torch.arange(9) % 3
    run = simulation(
        nn.Linear(3, 3), (inputs, targets), test=(inputs, targets), loss=nn.CrossEntropyLoss(ignore_index=0)
    )
    right = run.model()(inputs).argmax(dim=1) == targets
    assert run.evaluate()["accuracy"] == pytest.approx(float(right[targets != 0].double().mean()))


def test_a_users_metric_is_given_all_test_examples_at_once(monkeypatch):
    def f1(outputs, targets):
        guesses, real = outputs.argmax(dim=1) == 1, targets == 1
        return 2 * (guesses & real).sum() / (guesses.sum() + real.sum())

    monkeypatch.setattr(evaluation, "BATCH", 4)
    inputs, targets = numbers(11, 3), torch.arange(11) % 2
    for engine in ("serial", "workers"):
        run = simulation(nn.Linear(3, 2), (inputs, targets), test=(inputs, targets), metrics={"f1": f1}, engine=engine)
        assert run.evaluate()["f1"] == pytest.approx(float(f1(run.model()(inputs), targets)))
        run.close()


class Returned(dict[str, torch.Tensor]):
    """A dict whose parts are attributes, too, as transformers return it."""

    def __init__(self, **parts: torch.Tensor) -> None:
        super().__init__(**parts)
        vars(self).update(parts)


@dataclass(frozen=True, slots=True)
class Output:
    """What some models return."""

    scores: Any
    hidden: torch.Tensor | None = None


class Several(nn.Linear):
    def __init__(self, kind: Any) -> None:
        super().__init__(3, 2)
        self.kind = kind

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.kind(super().forward(inputs), inputs)


@pytest.mark.parametrize(
    ("kind", "scores"),
    [
        (lambda *parts: parts, lambda outputs: outputs[0]),
        (lambda a, b: Returned(a=a, b=b), lambda outputs: outputs.a),
        (lambda a, b: Output(a, b), lambda outputs: outputs.scores),
        (lambda a, b: Output(Output(a, b)), lambda outputs: outputs.scores.scores),
    ],
    ids=["a tuple", "a dict with attributes", "a dataclass", "a dataclass in another"],
)
def test_a_model_may_return_several_tensors_that_loss_and_metrics_know(kind, scores, monkeypatch):
    monkeypatch.setattr(evaluation, "BATCH", 4)  # outputs of several batches are joined
    pair = (numbers(11, 3), torch.arange(11) % 2)

    def loss(outputs, targets):
        return functional.cross_entropy(scores(outputs), targets)

    def right(outputs, targets):
        return (scores(outputs).argmax(dim=1) == targets).double().mean()

    model = Several(kind)
    run = simulation(model, pair, test=pair, loss=loss, metrics={"right": right})
    run.advance()
    plain = nn.Linear(3, 2)
    plain.load_state_dict(model.state_dict())
    same = simulation(plain, pair, test=pair)
    same.advance()
    assert torch.equal(run.theta, same.theta)
    assert run.evaluate() == {"loss": same.evaluate()["loss"], "right": same.evaluate()["accuracy"]}


def needs_both(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    if targets.unique().numel() < 2:
        raise ValueError("only one class is there")
    return float((outputs.argmax(dim=1) == targets).double().mean())


@pytest.mark.parametrize("clients", [False, True], ids=["test examples", "a client's"])
def test_a_metric_that_two_examples_are_too_few_for_is_tried_on_what_it_is_given_after_a_round(clients):
    inputs, targets = numbers(12, 3), torch.arange(12) // 6  # the first two are of one class
    about = {"metrics": {"auc": needs_both}}
    for classes in (targets, torch.zeros_like(targets)):
        train, test = (inputs, classes), None if clients else (inputs, classes)
        if classes.any():
            run = simulation(nn.Linear(3, 2), train, test=test, **about)
            scores = run.evaluate_clients("auc").values if clients else [run.evaluate()["auc"]]
            assert [*scores] == [needs_both(run.model()(inputs), targets)]
            continue
        sentence = r"the auc, given \(12, 2\) and \(12,\) in evaluation, fails; correct it, or return float\('nan'\) "
        sentence += r"where it is not defined\n  ValueError: only one class is there \(.*test_targets.py, line \d+\)$"
        with pytest.raises(InputError, match=sentence):
            simulation(nn.Linear(3, 2), train, test=test, **about)


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [(None, "the mine returns NoneType; return a number"), ({"f1": 1.0}, "the mine returns dict; return a number"),
     ("0.5", "the mine returns str; return a number"), (torch.ones(3), "the mine returns 3 numbers; return the mean")],
)  # fmt: skip
def test_a_metric_that_returns_no_number_is_refused(returned, sentence):
    pair = (numbers(6, 3), torch.arange(6) % 2)
    with pytest.raises(InputError, match=sentence):
        simulation(nn.Linear(3, 2), pair, test=pair, metrics={"mine": lambda outputs, targets: returned})


@pytest.mark.parametrize("partition", ["dirichlet", "shards", "imbalanced"])
def test_numbers_are_dealt_by_quantiles_if_that_is_asked_for(partition):
    targets = np.random.default_rng(0).permutation(200) / 200
    dataset = make_dataset((np.zeros((200, 1)), targets))
    with pytest.raises(InputError, match=f'"{partition}" deals by class, and targets are numbers; give quantiles'):
        federate(dataset, num_clients=4, partition=partition, seed=0)
    dealt = federate(dataset, num_clients=4, partition=partition, quantiles=4, alpha=1e-3, seed=0)
    # Of four classes, each a quarter of the numbers, a client has a few: its mean is far from 1/2.
    means = [float(dealt.client(client).targets.mean()) for client in range(4)]
    assert np.std(means) > 0.1
    same = federate(make_dataset((np.zeros((200, 1)), (targets * 4).astype(int))), num_clients=4, partition=partition,
                    alpha=1e-3, seed=0)  # fmt: skip
    assert torch.equal(same.targets, (dealt.targets * 4).long())
