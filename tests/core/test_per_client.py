"""A quantity per client: one value for all, a list, or what each client's is drawn from."""

from collections import Counter

import pytest

from fedadmm.core.errors import InputError
from fedadmm.core.per_client import Distribution, Range, check_length, value_of
from fedadmm.core.seeds import stream


def test_one_value_is_the_same_for_everyone() -> None:
    assert {value_of(3, client, seed=0, purpose="work") for client in range(9)} == {3}


def test_a_list_has_each_clients_own() -> None:
    assert [value_of((4, 1, 2), client, seed=0, purpose="work") for client in range(3)] == [4, 1, 2]
    with pytest.raises(InputError, match="speed lists 3 numbers for 4 clients; give one for each"):
        check_length("speed", (4, 1, 2), 4)
    for fitting in ((1, 2, 3, 4), 3, "1..5"):
        check_length("speed", fitting, 4)


def test_a_range_takes_every_number_equally_often() -> None:
    # 5,000 draws from 1..5: 1,000 of each, with a deviation of sqrt(5000 * 0.2 * 0.8) = 28.
    counts = Counter(value_of(Range(1, 5), 0, seed=0, purpose="work", round=round) for round in range(5000))
    assert sorted(counts) == [1, 2, 3, 4, 5]
    assert all(abs(count - 1000) < 4 * 28 for count in counts.values())


def test_a_range_of_one_number_is_that_number() -> None:
    assert {value_of(Range(2, 2), 0, seed=0, purpose="work", round=round) for round in range(9)} == {2}


def test_a_draw_is_from_the_stream_of_its_purpose_and_client_and_round_if_one_is_given() -> None:
    spread = Distribution(distribution="uniform", low=1, high=2)
    assert value_of(spread, 7, seed=5, purpose="clock upload") == 1 + stream(5, "clock upload", 7).random()
    drawn = value_of(Range(1, 1000), 7, seed=5, purpose="work", round=3)
    assert drawn == int(stream(5, "work", 3, 7).integers(1, 1001))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"distribution": "lognormal", "median": 1.0, "sigma": 400.0},
            "sigma=400.0 is out of range; use a number above 0 and up to 20",
        ),
        ({"distribution": "lognormal", "median": 1e300, "sigma": 1.0}, r"median=1e\+300 is out of range"),
        ({"distribution": "log_uniform", "low": 1e-300, "high": 1e300}, "low=1e-300 is out of range"),
    ],
)
def test_a_distribution_that_could_draw_no_number_is_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Distribution(**keys)


def test_the_widest_distributions_draw_numbers_above_0() -> None:
    for widest in (
        Distribution(distribution="lognormal", median=1e50, sigma=20.0),
        Distribution(distribution="log_uniform", low=1e-50, high=1e50),
    ):
        drawn = [value_of(widest, client, seed=0, purpose="work") for client in range(1000)]
        assert all(0 < value < 1e200 for value in drawn)
