"""Quadratics as examples: conditioned and heterogeneous as asked; and examples cast anew."""

import numpy as np
import pytest
import torch

from fedadmm import InputError, federate, load
from fedadmm.data.federated import in_float_type, two_classes
from fedadmm.data.generated import quadratic


@pytest.mark.parametrize(("dimension", "condition"), [(1, 1.0), (4, 1.0), (6, 50.0)])
def test_every_client_has_the_condition_that_was_asked_for(dimension, condition):
    data = quadratic(num_clients=3, seed=1, dimension=dimension, condition=condition)
    for client in range(3):
        a, b = (part.numpy() for part in data.client(client))
        curvatures = np.linalg.eigvalsh(a.T @ a / len(a))
        np.testing.assert_allclose(curvatures[[0, -1]], [1 / condition, 1.0], rtol=1e-12)
        minimiser, *_ = np.linalg.lstsq(a, b, rcond=None)
        np.testing.assert_allclose(a @ minimiser, b, atol=1e-10)


def test_heterogeneity_says_how_far_clients_are_apart():
    def spread(heterogeneity):
        data = quadratic(num_clients=20, seed=0, heterogeneity=heterogeneity)
        own = [torch.linalg.solve(*data.client(client)) for client in range(20)]
        return float(torch.stack(own).std(dim=0).mean())

    assert spread(0.0) < 1e-12
    assert 0.5 < spread(0.1) / 0.1 < 1.5
    assert 0.5 < spread(3.0) / 3.0 < 1.5


def test_a_client_is_the_same_in_a_larger_federation_and_another_with_another_seed():
    few, many = (quadratic(num_clients=number, seed=0) for number in (2, 5))
    assert torch.equal(few.client(1).inputs, many.client(1).inputs)
    assert not torch.equal(few.client(1).inputs, quadratic(num_clients=2, seed=1).client(1).inputs)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dimension": 0}, "dimension=0 is out of range; use a whole number from 1 on"),
        ({"condition": 0.5}, "condition=0.5 is out of range; use a number from 1 on"),
        ({"heterogeneity": -1.0}, "heterogeneity=-1.0 is out of range; use a finite number of at least 0"),
        ({"size": 3}, "unknown key 'size'; the keys are dimension, condition, heterogeneity"),
    ],
)
def test_options_that_make_no_quadratic_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        quadratic(num_clients=2, seed=0, **options)


def test_two_classes_leave_every_client_its_examples():
    data = federate(load("digits"), num_clients=10, partition="shards", seed=0)
    odd = two_classes(data, positive=[1, 3, 5, 7, 9])
    assert torch.equal(odd.targets, data.targets % 2)
    assert torch.equal(odd.test.targets, data.test.targets % 2)
    assert torch.equal(odd.inputs, data.inputs)
    assert (odd.num_classes, odd.offsets.tolist()) == (2, data.offsets.tolist())


@pytest.mark.parametrize("positive", [(), (10,), (-1,), tuple(range(10))])
def test_what_does_not_part_the_classes_in_two_is_refused(positive):
    data = federate(load("digits"), num_clients=10, partition="iid", seed=0)
    with pytest.raises(InputError, match="does not part 10 classes in two"):
        two_classes(data, positive=positive)


def test_a_float_type_is_that_of_numbers_and_classes_stay_whole():
    data = federate(load("digits"), num_clients=10, partition="iid", seed=0)
    double = in_float_type(data, torch.float64)
    assert (double.inputs.dtype, double.targets.dtype) == (torch.float64, torch.int64)
    assert double.test.inputs.dtype == torch.float64
    assert torch.equal(double.inputs.float(), data.inputs)
