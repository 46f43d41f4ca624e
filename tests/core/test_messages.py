"""Messages: their bytes, whether they are finite, and their mean in an order that is fixed."""

import math
from fractions import Fraction
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedadmm.core.mean import MeanInOrder, is_finite, num_bytes


class Parcel(NamedTuple):
    vector: torch.Tensor
    number: float


def _parcels(n: int) -> list[Parcel]:
    generator = torch.Generator().manual_seed(n)
    return [Parcel(torch.randn(3, generator=generator, dtype=torch.float64), float(index)) for index in range(n)]


def _mean(parcels: list[Parcel], weights: list[float]) -> Parcel:
    mean = MeanInOrder()
    for parcel, weight in zip(parcels, weights, strict=True):
        mean.add(parcel, weight=weight)
    return mean.mean()


@pytest.mark.slow
@given(st.data(), st.integers(1, 70))
def test_the_mean_in_order_is_the_mean(data: st.DataObject, n: int) -> None:
    weights = data.draw(st.lists(st.sampled_from([1.0, 0.5, 3.0, 17.0]), min_size=n, max_size=n))
    parcels = _parcels(n)
    mean = _mean(parcels, weights)
    total = sum(map(Fraction, weights))
    for column in range(3):  # in exact arithmetic
        exact = sum(Fraction(w) * Fraction(float(p.vector[column])) for p, w in zip(parcels, weights, strict=True))
        assert float(mean.vector[column]) == pytest.approx(float(exact / total), rel=1e-12, abs=1e-14)
    numbers = sum(Fraction(w) * Fraction(p.number) for p, w in zip(parcels, weights, strict=True))
    assert mean.number == pytest.approx(float(numbers / total), rel=1e-12)
    assert isinstance(mean, Parcel)


@given(st.integers(1, 40), st.booleans())
def test_messages_are_not_modified(n: int, weighted: bool) -> None:
    parcels = _parcels(n)
    before = [parcel.vector.clone() for parcel in parcels]
    mean = MeanInOrder()
    for index, parcel in enumerate(parcels):
        mean.add(parcel, weight=1.0 + index * weighted)
    mean.mean().vector.zero_()
    assert all(torch.equal(parcel.vector, old) for parcel, old in zip(parcels, before, strict=True))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_memory_of_a_message_may_be_used_again(n: int) -> None:
    parcels, memory, mean = _parcels(n), torch.empty(3, dtype=torch.float64), MeanInOrder()
    for parcel in parcels:
        memory.copy_(parcel.vector)
        mean.add(Parcel(memory, parcel.number), weight=1.0)
    assert torch.equal(mean.mean().vector, _mean(parcels, [1.0] * n).vector)


def test_the_tree_depends_on_the_number_of_messages_alone() -> None:
    # Five leaves: ((a + b) + (c + d)) + e, to the bit; one after the other they would give other bits.
    a, b, c, d, e = (parcel.vector for parcel in _parcels(5))
    mean = _mean(_parcels(5), [1.0] * 5).vector
    assert torch.equal(mean, (((a + b) + (c + d)) + e) / 5)
    # Seven: ((a + b) + (c + d)) + ((e + f) + g).
    a, b, c, d, e, f, g = (parcel.vector for parcel in _parcels(7))
    assert torch.equal(_mean(_parcels(7), [1.0] * 7).vector, (((a + b) + (c + d)) + ((e + f) + g)) / 7)


def test_the_same_messages_in_the_same_order_give_the_same_bits() -> None:
    # 0.1 + 0.2 + 0.3 is another number than 0.3 + 0.2 + 0.1: the order is part of the result.
    forward = [Parcel(torch.tensor([x], dtype=torch.float64), 0.0) for x in (0.1, 0.2, 0.3)]
    one, same, other = (_mean(p, [1.0] * 3).vector for p in (forward, list(forward), forward[::-1]))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_no_more_than_log_n_partial_sums_are_held() -> None:
    mean = MeanInOrder()
    for n, parcel in enumerate(_parcels(300), start=1):
        mean.add(parcel, weight=1.0)
        assert len(mean._partial) <= math.log2(n + 1)


def test_plain_tuples_have_a_mean_too() -> None:
    mean = MeanInOrder()
    for value in (1.0, 4.0):
        mean.add((torch.tensor([value]),), weight=1.0)
    (vector,) = mean.mean()
    assert vector.tolist() == [2.5]


def test_a_message_with_a_nan_or_an_infinity_is_not_finite() -> None:
    fine = torch.ones(4)
    for bad in (math.nan, math.inf, -math.inf):
        spoilt = fine.clone()
        spoilt[2] = bad
        assert not is_finite((fine, spoilt))
        assert not is_finite((fine, bad))
    assert not is_finite((torch.tensor([math.inf, -math.inf]),))
    assert is_finite((fine, 3.0, torch.arange(3), torch.empty(0)))


def test_finite_numbers_whose_sum_overflows_are_finite() -> None:
    big = torch.full((10,), 3e38)
    assert torch.isinf(big.sum())
    assert is_finite((big,))
    assert is_finite((torch.full((10,), -3e38),))


def test_bytes_are_those_of_the_fields() -> None:
    # 3 float64, 5 float32, 2 int64, and one scalar of 8 bytes.
    message = (torch.zeros(3, dtype=torch.float64), torch.zeros(5), torch.zeros(2, dtype=torch.int64), 0.5)
    assert num_bytes(message) == 24 + 20 + 16 + 8
    assert num_bytes(()) == 0
