"""What a user's function raises is a sentence that names it, with the error on a line below, on every engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from fedadmm import FedADMM, FedAvg, InputError, LocalTraining, PartitionedData, federate, load, make_dataset, simulate
from fedadmm.core.errors import import_named
from fedadmm.training.models import initial_model
from fedadmm.training.task import LearningTask
from worlds import some_data


class FailsInTraining(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) if not self.training else 1 / 0


class FailsAtSize(nn.Linear):
    size = 2

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if len(inputs) == self.size and self.training:
            raise RuntimeError(f"shape '[6, 4]' is invalid for input of size {inputs.numel()}\nand more")
        return super().forward(inputs)


class FailsInEvaluation(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training and len(inputs) > 2:
            raise RuntimeError("no evaluation")
        return super().forward(inputs)


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3, dtype=torch.cfloat))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs.to(torch.cfloat) @ self.weight).abs()


class Data:
    """No tensor, and no tuple or dict of such."""


class Wrapped(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, inputs: torch.Tensor) -> Any:
        return Data()


class LateClient(FedAvg):
    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        if problem.round == 2 and problem.num_examples > 2:
            raise KeyError("client")
        return super().client_update(server, client, problem)


class LateServer(FedAvg):
    def server_update(self, server: Any, mean: Any, turnout: Any) -> Any:
        return super().server_update(server, mean, turnout) if turnout.active == 1 else [][1]


class Eager(FedAvg):
    def init_server(self, theta: Any) -> Any:
        raise AttributeError("no server")


def failing(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("mine")


def failing_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return failing() if len(targets) == 6 else nn.functional.cross_entropy(outputs, targets)


def failing_metric(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return failing() if len(targets) > 2 else outputs.mean()


def not_finite() -> nn.Module:
    module = nn.Linear(4, 3)
    nn.init.constant_(module.bias, float("nan"))
    return module


LINE = r"\n  ZeroDivisionError: mine \(.*test_own_functions.py, line \d+\)$"
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": failing}, rf"model test_own_functions:failing, called with {{}}, fails; correct it{LINE}"),
    (
        {"model": lambda depth: depth},
        "has a parameter 'depth', for which there is no value; rename it to input_shape or .*: set model.options.depth",
    ),
    ({"model": lambda: 3}, "returned int; return a torch.nn.Module"),
    ({"model": None}, "model=None is not a model"),
    ({"model": not_finite}, "the model's bias is not finite before the first round; correct how it is initialised"),
    ({"model": nn.Linear(4, 2)}, "returns 2 scores for an example, and the data has 3 classes; give its last layer 3"),
    ({"model": FailsInTraining(4, 3)}, r"the model, trained on \(6, 4\) of client 0, fails; .*\n  ZeroDivisionError"),
    (
        {"model": FailsAtSize(4, 3)},
        r"trained on \(2, 4\) of client 0, fails; correct it\n  RuntimeError: shape [^\n]*$",
    ),
    (
        {"model": FailsInEvaluation(4, 3)},
        r"the model, evaluated on \(20, 4\), fails; .*\n  RuntimeError: no evaluation",
    ),
    ({"loss": failing}, "the loss does not take .outputs, targets. of shapes .*: mine; correct it"),
    ({"loss": failing_loss}, rf"the loss, given outputs \(6, 3\) and targets \(6,\) of client 0, fails; .*{LINE}"),
    ({"metrics": {"mine": failing_metric}}, rf"the mine, given \(20, 3\) and \(20,\) in evaluation, fails; .*{LINE}"),
    ({"loss": lambda z, y: float(z.mean())}, "the loss returns float; return a tensor with its gradient"),
    ({"loss": lambda z, y: (z.argmax(1) == y).float().mean()}, "the loss has no gradient: .* leave out detach, argmax"),
    ({"loss": lambda z, y: torch.fft.fft(z).mean()}, "the loss returns a complex number; return a real one"),
    ({"loss": lambda z, y: nn.functional.cross_entropy(z, y, reduction="sum")}, "twice as large; return the mean over"),
    ({"loss": lambda z, y: nn.functional.cross_entropy(z, y.sub_(1) + 1)}, "the loss changes the targets"),
    ({"metrics": {"mine": lambda z, y: z.zero_().sum()}}, r"the mine changes the outputs .*; let it work on a copy"),
    ({"metrics": {"distance": failing}}, "metrics has 'distance', which a record has for something else; give it an"),
    (
        {"metrics": {"V": failing}, "certificate": {}, "algorithm": FedADMM()},
        "metrics has 'V', which a record has for something else; give it another name",
    ),
    (
        {"metrics": {"epsilon_max": failing}, "local": LocalTraining(tolerance=1.0)},
        "metrics has 'epsilon_max', which a record has for something else",
    ),
    ({"metrics": {3: failing}}, "metrics has 3 as a name, which is not a string; give one, such as 'f1'"),
    ({"metrics": {"loss_client_mean": failing}}, "metrics has 'loss_client_mean', which a record has for something"),
    ({"model": Complex()}, "has parameters of .*complex64.; keep real ones and make complex numbers"),
    ({"model": Wrapped()}, r"the model returns Data for inputs of shape \(2, 4\); return a tensor, or a tuple or dict"),
    (
        {"participation": failing},
        rf"participation test_own_functions:failing, called with .* in round 1, fails; .*{LINE}",
    ),
    (
        {"participation": lambda number: [0]},
        r"fails; return the ids of the clients .*\n  TypeError: .*takes 1 positional",
    ),
    ({"participation": lambda *_: None}, r"fails; return the ids of the clients .*\n  TypeError: 'NoneType'"),
    ({"participation": lambda *_: [9]}, "participation chose client 9 in round 1; ids run from 0 to 2"),
    ({"participation": lambda *_: ["a"]}, "values in round 1; return whole client ids"),
    ({"participation": None}, "participation=None"),
    ({"algorithm": Eager()}, r"init_server of Eager\(eta=1.0\) fails; correct it\n  AttributeError: no server"),
    (
        {"algorithm": LateClient()},
        r"client_update of LateClient, for client 0 in round 2, fails; .*\n  KeyError: 'client'",
    ),
    ({"algorithm": LateServer()}, r"server_update of LateServer, in round 1, fails; correct it\n  IndexError"),
    ({"workers": 0}, "workers=0 is out of range; use a whole number from 1 on"),
    ({"workers": 1.5}, "workers=1.5 is not valid"),
    ({"seed": "a"}, "seed='a' is not valid; give a whole number"),
    ({"metric": "f1"}, "metric='f1' is unknown; the metrics are accuracy"),
    ({"weighting": "heavy"}, "weighting='heavy' is not valid"),
    ({"engine": 3}, "engine=3 is not valid"),
    ({"l2": -1}, "l2=-1.0 is out of range"),
    ({"l2": "x"}, "l2='x' is not valid"),
    ({"clock": {"speed": 0}}, "speed=0.0 is out of range"),
    ({"faults": {"lose": 1}}, "unknown key 'lose'; the keys are lose_requests"),
    ({"local": LocalTraining(epochs=[1, 2])}, "epochs lists 2 numbers for 3 clients; give one for each"),
    ({"local": LocalTraining(solver="nowhere:f")}, "there is no module nowhere"),
    ({"certificate": {"every": 1}}, "FedAvg has no certificate"),
    ({"certificate": {"clients": 9}, "algorithm": FedADMM()}, "certificate.clients=9 of 3 clients cannot be drawn"),
    ({"rounds": "3"}, "rounds='3' is not valid; give a whole number"),
    ({"round": 3}, "round"),
]


@pytest.mark.parametrize(("change", "sentence"), MISTAKES, ids=[" ".join(change) for change, _ in MISTAKES])
def test_a_mistake_from_python_is_a_sentence(change: dict[str, Any], sentence: str) -> None:
    local = LocalTraining(epochs=1, batch_size=6)
    usual = {"algorithm": FedAvg(), "model": nn.Linear(4, 3), "data": some_data([8, 8, 8]), "rounds": 3}
    usual |= {"participation": 1.0, "local": local, "engine": "serial"}
    with pytest.raises(InputError, match=sentence):
        simulate(**usual | change)


def test_a_target_without_an_output_is_a_sentence_where_the_number_of_classes_is_not_known() -> None:
    data = some_data([8, 8])
    data = PartitionedData(data.inputs, data.targets, data.offsets, None, 0)
    data.targets[:8] = 0
    with pytest.raises(
        InputError, match=r"Target 2 is out of bounds.*; the targets are from 1 to 2: number them from 0"
    ):
        simulate(FedAvg(), model=nn.Linear(4, 2), data=data, rounds=1, participation=1.0, engine="serial")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"partition": failing}, rf"partition test_own_functions:failing, called with .*, fails; correct it{LINE}"),
        ({"partition": lambda labels: [labels]}, r"fails; correct it\n  TypeError: .*takes 1 positional argument"),
        ({"partition": lambda *_: None}, "the partition is of type NoneType; return a list of index arrays"),
        ({"partition": lambda *_: [["a"], ["b"]]}, "fails; correct it"),
        ({"partition": lambda *_: [[0], [[1, 2], [3]]]}, "fails; correct it"),
        ({"partition": "nowhere:f"}, "there is no module nowhere"),
        ({"partition": "random"}, "there is no partition 'random'"),
        ({"num_clients": 5.0}, "num_clients=5.0"),
        ({"num_clients": 0}, "num_clients=0 is not a number of clients"),
        ({"num_clients": 10**6}, "num_clients=1000000 is more than the 1437 examples"),
        ({"seed": "a"}, "seed='a' is not valid; give a whole number"),
        ({"alpha": -1, "partition": "dirichlet"}, "alpha=-1 is not a Dirichlet parameter"),
    ],
)
def test_a_mistake_in_dealing_is_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        federate(load("digits"), **{"num_clients": 2, "partition": "iid", "seed": 0} | arguments)


@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        ("digits", "data of type str; give a pair"),
        ((torch.zeros(3, 2),), "data of type tuple; give a pair"),
        ((torch.zeros(3, 2), torch.zeros(2)), "3 inputs and 2 targets"),
        ((torch.zeros(0, 2), torch.zeros(0)), "data with 0 examples"),
        ((np.array(["a"]), torch.zeros(1)), "inputs of type an array of <U1"),
        ((torch.zeros(2, 2), torch.tensor([-1, 0])), "a target is -1; number the classes from 0.* or give numbers"),
        (TensorDataset(torch.zeros(2, 2), torch.zeros(2), torch.zeros(2)), "item 0 of .* is a tuple of 3; .*collate"),
    ],
)
def test_data_that_is_none_is_a_sentence(train: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_dataset(train)


def test_a_network_in_a_file_is_not_one_that_a_seed_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worlds.perceptron", nn.Linear(4, 3))
    with pytest.raises(
        InputError, match='model "worlds:perceptron" is a network, whose weights no seed of the run rules'
    ):
        initial_model("worlds:perceptron", seed=0)


def test_a_class_in_a_column_is_told_to_be_squeezed() -> None:
    data = make_dataset((torch.ones(8, 4), torch.ones(8, 1, dtype=torch.int64)))
    data = federate(data, num_clients=2, partition="iid", seed=0)
    with pytest.raises(InputError, match=r"give a class for each example, targets\.squeeze\(1\)"):
        simulate(FedAvg(), model=lambda: nn.Linear(4, 3), data=data, rounds=1, participation=1.0)


def test_scores_of_clients_who_have_no_examples_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    data = federate(load("digits"), num_clients=4, partition="iid", seed=0)
    result = simulate(FedAvg(), model="softmax_regression", data=data, rounds=0, participation=1.0, progress=False)
    monkeypatch.setattr(LearningTask, "evaluate_client", lambda *_, **__: {})
    with pytest.raises(InputError, match=r"no client has examples to be scored on; give data\.client_test"):
        result.evaluate_clients()


def test_a_folder_of_a_modules_name_is_told_from_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty_room").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"empty_room is a folder without a module; write empty_room\.py"):
        import_named("empty_room:data", what="data")
