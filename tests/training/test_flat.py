"""A module as one vector: views, not copies; trainable parameters only; buffers beside it."""

import pytest
import torch
from torch import nn

from fedadmm.core.errors import InputError
from fedadmm.core.round import Buffers
from fedadmm.training.flat import FlatModel
from worlds import made, network


def test_the_parameters_are_views_of_the_vector_in_order() -> None:
    module = made(network)
    expected = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    flat = FlatModel(module)
    assert torch.equal(flat.weights, expected)
    flat.load(torch.arange(63.0))
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()).detach(), torch.arange(63.0))
    assert module[0].weight[1, 2] == 6.0  # the second row of a 6x4 matrix begins at 4
    with torch.no_grad():
        module[0].weight[0, 0] = -5.0
    assert flat.weights[0] == -5.0


def test_splitting_a_vector_gives_views_in_the_shapes_of_the_parameters() -> None:
    flat = FlatModel(made(network))
    vector = torch.zeros(63)
    parts = flat.split(vector)
    assert [part.shape for part in parts] == [p.shape for p in flat.module.parameters()]
    parts[-1].fill_(1.0)
    assert vector.sum() == 3  # the last bias


def test_loading_copies() -> None:
    flat = FlatModel(made(network))
    source = torch.ones(63)
    flat.load(source)
    flat.weights.zero_()
    assert source.sum() == 63


def test_buffers_survive_the_way_out_and_in() -> None:
    flat, other = (FlatModel(made(network, seed=seed)) for seed in (0, 1))
    flat.module.train()(torch.randn(9, 4))
    buffers = flat.buffers()
    assert (buffers.floats.shape, buffers.integers.tolist()) == ((12,), [1])
    other.load_buffers(buffers)
    for name, value in flat.module.named_buffers():
        assert torch.equal(dict(other.module.named_buffers())[name], value)
    before = buffers.floats.clone()
    flat.module(torch.randn(9, 4))
    assert torch.equal(buffers.floats, before)  # a copy


def test_a_model_without_buffers_has_empty_ones() -> None:
    flat = FlatModel(nn.Linear(2, 1))
    buffers = flat.buffers()
    assert (buffers.floats.numel(), buffers.integers.numel()) == (0, 0)
    flat.load_buffers(buffers)


def test_buffers_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(RuntimeError):
        FlatModel(made(network)).load_buffers(Buffers(torch.zeros(5), torch.zeros(1, dtype=torch.int64)))


def test_frozen_parameters_stay_out_of_the_vector() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    module[0].requires_grad_(False)
    kept = module[0].weight.clone()
    flat = FlatModel(module)
    assert flat.weights.numel() == 4
    flat.load(torch.zeros(4))
    assert torch.equal(module[0].weight, kept)


def test_tied_parameters_count_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    flat = FlatModel(module)
    assert flat.weights.numel() == 9 + 3 + 3
    flat.load(torch.ones(15))
    assert module[1].weight.sum() == 9


def test_a_model_that_is_no_vector_is_refused() -> None:
    with pytest.raises(InputError, match="the model has no trainable parameters; give one a requires_grad of True"):
        FlatModel(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(InputError, match=r"the model mixes parameters of .*; use one type"):
        FlatModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
