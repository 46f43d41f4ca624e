"""A schedule is, in each round, the number that it says: at the clients and at the server alike."""

from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.schedules import Step
from play import Play, identical
from worlds import quadratic_world

RATES = [
    (name, field.name)
    for name, algorithm in ALGORITHMS.items()
    for field in fields(algorithm)
    if Step in get_args(get_type_hints(algorithm)[field.name])
]


def _third_round(algorithm: Algorithm, *, after: Algorithm) -> Play:
    """Play two rounds with one algorithm, and a third with another."""
    world = quadratic_world()
    first = world.play(after).rounds([[0, 1, 3], [0, 2, 3]])
    _, server, _, seen = first.checkpoint
    return world.play(algorithm).given(server=server, states=first.states, round=2, seen=seen).rounds([[0, 1, 4]])


@pytest.mark.parametrize(("name", "rate"), RATES)
def test_a_schedule_is_its_number_of_the_round(name: str, rate: str) -> None:
    small, large = (ALGORITHMS[name](**{rate: value}) for value in (0.5, 0.8))
    rising, risen = (ALGORITHMS[name](**{rate: Step(0.5, 0.8, at_round=t)}) for t in (4, 3))
    third = {
        "small": _third_round(small, after=small),
        "rising in round 4": _third_round(rising, after=small),
        "large": _third_round(large, after=small),
        "risen in round 3": _third_round(risen, after=small),
    }
    for same, as_number in (("rising in round 4", "small"), ("risen in round 3", "large")):
        assert identical(tuple(third[same].checkpoint), tuple(third[as_number].checkpoint))
        assert identical(third[same].states, third[as_number].states)
    assert not identical(tuple(third["small"].checkpoint), tuple(third["large"].checkpoint))


def test_some_algorithms_have_no_rate() -> None:
    without = {
        "fast_fedadmm", "averaged", "look_ahead", "fedsgd", "feddyn_auto", "mifa", "adabest", "afedpd",
        "randomised_server",
    }  # fmt: skip
    assert {name for name, _ in RATES} == set(ALGORITHMS) - without
