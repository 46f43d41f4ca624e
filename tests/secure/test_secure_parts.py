"""Secret sharing, the graph and the fixed-point numbers, each against what others have written."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from fedadmm.secure.encoding import Encoding
from fedadmm.secure.fixed_point import FixedPoint, OutOfRangeError, drawn
from fedadmm.secure.graph import harary
from fedadmm.secure.settings import Secure
from fedadmm.secure.shamir import PRIME, SECRET_BYTES, combine, split


def test_the_prime_is_one_and_above_every_secret() -> None:
    assert sympy.isprime(PRIME)
    assert PRIME > 2 ** (8 * SECRET_BYTES)


@given(st.binary(min_size=16, max_size=16), st.sets(st.integers(1, 2**40), min_size=1, max_size=9), st.data())
@settings(max_examples=30, deadline=None)
def test_any_threshold_of_shares_gives_the_secret(secret: bytes, points: set[int], data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, len(points)))
    shares = split(secret, points=sorted(points), threshold=threshold)
    chosen = data.draw(st.permutations(sorted(points)))[:threshold]
    assert combine({point: shares[point] for point in chosen}) == secret


def test_shares_are_points_of_a_polynomial_as_sympy_interpolates_it() -> None:
    secret = bytes(range(16))
    shares = split(secret, points=[1, 5, 9], threshold=3)
    values = {point: int.from_bytes(share) for point, share in shares.items()}
    numerator, denominator = sympy.fraction(sympy.together(sympy.interpolate(values, 0)))
    assert int(numerator) * pow(int(denominator), -1, PRIME) % PRIME == int.from_bytes(secret)


def test_fewer_shares_than_the_threshold_fit_every_secret() -> None:
    # Two shares of three: for any secret there is a third share with which they give it.
    shares = split(bytes(16), points=[1, 2, 3], threshold=3)
    known = {point: shares[point] for point in (1, 2)}
    for secret in (b"\1" * 16, b"\xff" * 16):
        # The polynomial through (0, secret), (1, a), (2, b) at 3 is secret - 3 a + 3 b.
        a, b = (int.from_bytes(known[point]) for point in (1, 2))
        third = (int.from_bytes(secret) - 3 * a + 3 * b) % PRIME
        assert combine(known | {3: third.to_bytes(17)}) == secret


def test_shares_of_the_same_secret_differ_each_time() -> None:
    first, second = (split(bytes(16), points=[1, 2], threshold=2) for _ in range(2))
    assert first != second


@pytest.mark.parametrize(("num", "degree"), [(2, 1), (4, 3), (5, 3), (6, 3), (9, 4), (10, 5), (11, 5), (7, 100)])
def test_the_graph_is_regular_and_as_connected_as_a_graph_can_be(num: int, degree: int) -> None:
    graph = harary(list(range(10, 10 + num)), degree=degree)
    degrees = {len(others) for others in graph.values()}
    assert len(degrees) == 1
    found = degrees.pop()
    assert found == min(num - 1, degree) - (degree % 2 and num % 2 and degree < num)
    assert all(client in graph[other] for client, others in graph.items() for other in others)
    assert nx.node_connectivity(nx.Graph([(c, o) for c, others in graph.items() for o in others])) == found


@given(st.integers(2, 40), st.integers(2, 50), st.floats(0.5, 0.999))
def test_no_more_shares_are_needed_than_a_client_has_neighbours(num: int, neighbours: int, threshold: float) -> None:
    settings = Secure(neighbours=neighbours, threshold=threshold)
    degree = settings.degree(num)
    assert degree == len(harary(range(num), degree=degree)[0])
    assert settings.shares_needed(num) <= max(degree, 1)


@pytest.mark.parametrize(("num", "neighbours", "threshold"), [(5, 3, 0.7), (11, 9, 0.9), (33, 31, 0.97)])
def test_an_odd_number_of_neighbours_leaves_rounds_that_count(num: int, neighbours: int, threshold: float) -> None:
    settings = Secure(neighbours=neighbours, threshold=threshold)
    assert settings.degree(num) == neighbours - 1
    assert settings.shares_needed(num) <= neighbours - 1


def test_statistics_are_added_up_whatever_they_are() -> None:
    encoding = Encoding(Secure().coordinates(3), ())
    rows = [[1, 2e6, 1_100_000], [1, math.nan, 5], [1, math.inf, 2**40]]
    total = sum(encoding.statistic_words(row) for row in rows)
    assert encoding.statistics.numbers(total).tolist() == [3, 2e6 + 2**33, 1_100_005 + 2**32]


NUMBERS = FixedPoint(32, largest=16.0, num_terms=100)


def test_the_step_is_what_the_range_and_the_clients_leave_of_the_bits() -> None:
    # 100 x 16 = 1600 < 2^11, and a sign: 32 - 12 = 20 digits after the point.
    assert NUMBERS.binary_places == 20
    assert FixedPoint(64, largest=16.0, num_terms=100).binary_places == 52
    # 4 x 16 = 2^6 itself has to be below 2^(bits - 1).
    assert FixedPoint(32, largest=16.0, num_terms=4).binary_places == 24


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("num", [1, 3, 4, 100])
@pytest.mark.parametrize("largest", [16.0, 0.3, 1.0])
def test_the_largest_sum_does_not_wrap_around(bits: int, num: int, largest: float) -> None:
    numbers, generator = FixedPoint(bits, largest, num), np.random.default_rng(0)
    for sign in (1, -1):
        total = sum(numbers.words(numbers.rounded([sign * largest], drawn(generator))) for _ in range(num))
        assert numbers.numbers(total) == pytest.approx(sign * num * largest, rel=1e-6, abs=num * numbers.step)


@pytest.mark.parametrize("wrong", [16.001, -17.0, np.inf, -np.inf, np.nan])
def test_a_number_out_of_range_is_refused_before_it_is_masked(wrong: float) -> None:
    with pytest.raises(OutOfRangeError, match="beyond 16"):
        NUMBERS.rounded([0.0, wrong])


def test_rounding_is_right_in_the_mean_and_off_by_less_than_a_step() -> None:
    wanted = np.linspace(-1, 1, 7) / 3 * NUMBERS.step * 5
    found = np.stack([NUMBERS.rounded(wanted, drawn(np.random.default_rng(seed))) for seed in range(4000)])
    assert np.abs(found - wanted).max() < NUMBERS.step
    # The deviation of one draw is at most half a step, of a mean of 4000 of them 0.008 steps.
    assert np.abs(found.mean(0) - wanted).max() < 0.04 * NUMBERS.step
    assert np.array_equal(found[:, 3], np.zeros(4000))  # what can be said exactly is


def test_sums_are_the_same_in_every_order() -> None:
    generator = np.random.default_rng(0)
    words = [NUMBERS.words(NUMBERS.rounded(generator.normal(size=3), drawn(generator))) for _ in range(4)]
    sums = {tuple(sum(order).tolist()) for order in itertools.permutations(words)}
    assert len(sums) == 1


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_what_is_rounded_once_is_rounded_and_a_float32_holds_it(bits: int) -> None:
    numbers, generator = FixedPoint(bits, 16.0, num_terms=4), np.random.default_rng(0)
    wanted = (generator.uniform(-16, 16, size=1000) * 2.0 ** -generator.integers(0, 30, size=1000)).astype(np.float32)
    once = numbers.rounded(wanted, drawn(generator))
    assert np.array_equal(once, once.astype(np.float32))
    assert np.array_equal(numbers.rounded(once, drawn(generator)), once)
    assert np.array_equal(numbers.numbers(numbers.words(once)), once)
