"""The networks of the paper, of its released code, and of the user."""

import sys
from inspect import getdoc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm.config.tables import ModelSettings
from fedadmm.core.errors import InputError
from fedadmm.training.models import MODELS, initial_model

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def _build(model: Any, shape: tuple[int, ...] = GREY, *, seed: int = 0, **options: Any) -> nn.Module:
    return initial_model(model, inputs=torch.zeros(1, *shape), num_classes=10, seed=seed, options=options)


@pytest.mark.parametrize(
    ("name", "shape", "num_parameters"),
    [
        ("cnn1", GREY, 1_663_370),
        ("cnn1_released", GREY, 1_663_370),
        ("cnn2", COLOUR, 1_105_098),
        ("cnn2_released", COLOUR, 1_105_098),
        ("small_cnn", COLOUR, (3 * 9 + 1) * 16 + (16 * 9 + 1) * 32 + (32 * 8 * 8 + 1) * 10),
        ("mlp", GREY, 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10),
        ("softmax_regression", (64,), 64 * 10 + 10),
        ("linear", (64,), 64 * 10 + 10),
    ],
)
def test_a_network_has_the_papers_number_of_parameters(name: str, shape: tuple[int, ...], num_parameters: int) -> None:
    module = _build(name, shape)
    assert sum(parameter.numel() for parameter in module.parameters()) == num_parameters
    assert module(torch.zeros(2, *shape)).shape == (2, 10)


def test_every_network_is_counted_above() -> None:
    networks = {
        "cnn1",
        "cnn2",
        "cnn1_released",
        "cnn2_released",
        "small_cnn",
        "mlp",
        "gru",
    }  # gru: tests/data/test_text.py
    assert set(MODELS) == networks | {"linear", "softmax_regression", "logistic_regression"}


def test_the_key_of_a_model_names_every_network() -> None:
    said = getdoc(ModelSettings).partition("name = ")[2].partition("options = ")[0]
    assert [name for name in MODELS if f'"{name}"' not in said] == []


def test_a_linear_model_of_numbers_returns_one_for_each_example() -> None:
    module = initial_model("linear", inputs=torch.zeros(1, 4), num_classes=0, seed=0, options={"bias": False})
    assert sum(parameter.numel() for parameter in module.parameters()) == 4
    assert module(torch.zeros(1, 4)).shape == (1,)
    assert module(torch.zeros(3, 4)).shape == (3,)


@pytest.mark.parametrize("name", ["linear", "mlp", "small_cnn"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5)])
def test_our_networks_return_numbers_in_the_shape_of_a_target(name: str, shape: tuple[int, ...]) -> None:
    images = torch.zeros(2, 1, 8, 8)
    module = initial_model(name, inputs=images, targets=torch.zeros(2, *shape), num_classes=0, seed=0)
    assert module(images).shape == (2, *shape)


def test_a_function_is_given_the_shape_of_a_target_and_told_of_it_where_it_asks_for_classes_in_vain() -> None:
    def own(input_shape: tuple[int], target_shape: tuple[int]) -> nn.Module:
        return nn.Linear(input_shape[0], target_shape[0])

    def vain(num_classes: int) -> nn.Module:
        return nn.Linear(4, num_classes)

    labels = {"inputs": torch.zeros(1, 4), "targets": torch.zeros(1, 3), "seed": 0}
    assert initial_model(own, **labels).out_features == 3
    with pytest.raises(
        InputError, match=r"num_classes is 0, because targets are numbers; .* target_shape, which is \(3,\)"
    ):
        initial_model(vain, **labels)


def test_logistic_regression_has_the_logistic_loss_and_two_classes() -> None:
    module = initial_model("logistic_regression", inputs=torch.zeros(1, 4), num_classes=2, seed=0)
    inputs, targets = torch.randn(5, 4), torch.tensor([0, 1, 1, 0, 1])
    score = module[1](inputs)[:, 0]
    by_torch = functional.binary_cross_entropy_with_logits(score, targets.float())
    torch.testing.assert_close(functional.cross_entropy(module(inputs), targets), by_torch)
    with pytest.raises(InputError, match="tells two classes apart, the data has 10; list those of class 1"):
        _build("logistic_regression")


@pytest.mark.parametrize(("name", "shape"), [("cnn1_released", GREY), ("cnn2_released", COLOUR)])
def test_a_released_network_returns_probabilities(name: str, shape: tuple[int, ...]) -> None:
    outputs = _build(name, shape)(torch.randn(4, *shape))
    assert (outputs >= 0).all()
    torch.testing.assert_close(outputs.sum(dim=1), torch.ones(4))


@pytest.mark.parametrize(("name", "shape"), [("cnn1", GREY), ("cnn2", COLOUR)])
def test_the_papers_network_returns_scores(name: str, shape: tuple[int, ...]) -> None:
    assert (_build(name, shape)(torch.randn(4, *shape)) < 0).any()


@pytest.mark.parametrize(("name", "relus"), [("cnn1", 3), ("cnn1_released", 1), ("cnn2", 3), ("cnn2_released", 1)])
def test_a_released_network_has_its_only_activation_between_the_dense_layers(name: str, relus: int) -> None:
    kinds = [type(layer) for layer in _build(name, GREY if "1" in name else COLOUR).modules()]
    assert kinds.count(nn.ReLU) == relus
    dense = [index for index, kind in enumerate(kinds) if kind is nn.Linear]
    assert kinds[dense[0] + 1] is nn.ReLU


def test_a_seed_gives_one_model_and_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (nn.utils.parameters_to_vector(_build("mlp", seed=seed).parameters()) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_users_function_is_given_the_facts_it_asks_for() -> None:
    def narrow(num_classes: int, *, width: int = 3) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.Linear(width, num_classes))

    assert _build(narrow)[1].out_features == 3
    assert _build(narrow, width=7)[1].out_features == 7
    assert isinstance(_build(lambda: nn.Linear(2, 2)), nn.Linear)


def test_a_users_function_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from torch import nn\ndef tiny(input_shape):\n    return nn.Linear(input_shape[-1], 4)\n"
    (tmp_path / "my_own_nets.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert _build("my_own_nets:tiny").out_features == 4
    sys.modules.pop("my_own_nets")


@pytest.mark.parametrize(
    ("model", "shape", "sentence"),
    [
        ("cnn1", COLOUR, "cnn1 takes inputs of shape 1x28x28, the data has 3x32x32; use mlp, or a model of your own"),
        ("cnn2_released", GREY, "cnn2_released takes inputs of shape 3x32x32, the data has 1x28x28"),
        ("small_cnn", (64,), "small_cnn takes images from 4x4 on, the data has inputs of shape 64; use mlp"),
        ("resnet", GREY, "model 'resnet' is unknown; use one of cnn1, cnn2,"),
        (
            lambda wrong: nn.Linear(2, 2),
            GREY,
            "has a parameter 'wrong', for which there is no value; rename it to input_shape or",
        ),
        (lambda: "a net", GREY, "returned str; return a torch.nn.Module"),
    ],
)
def test_a_model_that_cannot_be_made_is_refused(model: Any, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        _build(model, shape)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(("name", "shape"), [("cnn1", GREY), ("cnn2", COLOUR)])
def test_a_paper_network_is_convolution_relu_pool_twice_and_two_dense_layers(name: str, shape: tuple[int, ...]) -> None:
    module = _build(name, shape)
    first, second, hidden, last = (m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear))
    images = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    x = functional.max_pool2d(torch.relu(first(images)), 2)
    x = functional.max_pool2d(torch.relu(second(x)), 2)
    expected = last(torch.relu(hidden(x.flatten(start_dim=1))))
    torch.testing.assert_close(module(images), expected)
