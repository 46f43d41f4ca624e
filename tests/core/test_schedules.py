"""Rates as functions of the round, at their boundaries."""

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedadmm.core.errors import InputError
from fedadmm.core.schedules import (
    Constant,
    Cosine,
    Decay,
    PositiveConstant,
    PositiveRate,
    Power,
    Rate,
    Step,
    at,
    check_fields,
    check_rate,
    rate_from,
    to_plain,
)

SCHEDULES = [Constant(0.3), Step(1.0, 0.5, at_round=60), Cosine(0.1, 0.01, length=11), Power(0.5, 2)]


def test_a_number_and_a_constant_are_the_same_in_every_round() -> None:
    assert [at(0.3, round) for round in (1, 2, 1000)] == [0.3] * 3
    assert [at(Constant(0.3), round) for round in (1, 2, 1000)] == [0.3] * 3
    assert at(1, 5) == 1


def test_a_step_changes_in_its_round() -> None:
    assert [Step(1.0, 0.5, at_round=60).at(round) for round in (1, 59, 60, 61, 999)] == [1.0, 1.0, 0.5, 0.5, 0.5]


def test_a_cosine_falls_from_its_start_in_round_1_to_its_end_in_its_last() -> None:
    # From 3 to 1 in 5 rounds: 1 + 2 (1 + cos(pi (t - 1)/4))/2, so cos(pi/4) = sqrt(1/2) in round 2 and 0 in round 3.
    values = [Cosine(3.0, 1.0, length=5).at(round) for round in (1, 2, 3, 4, 5, 6, 100)]
    half = math.sqrt(0.5)
    assert values == pytest.approx([3.0, 2 + half, 2.0, 2 - half, 1.0, 1.0, 1.0], abs=1e-15)


@given(st.floats(0, 10), st.floats(0, 10), st.integers(2, 50), st.integers(1, 100))
def test_a_cosine_stays_between_its_ends(start: float, end: float, length: int, round: int) -> None:
    value = Cosine(start, end, length=length).at(round)
    assert min(start, end) - 1e-12 <= value <= max(start, end) + 1e-12


def test_a_power_falls_with_the_round() -> None:
    # 3 / t^2 in rounds 1, 2, 3 and 10.
    assert [Power(3.0, 2).at(round) for round in (1, 2, 3, 10)] == pytest.approx([3.0, 0.75, 1 / 3, 0.03])
    assert [Power(3.0, 0).at(round) for round in (1, 9)] == [3.0, 3.0]
    assert [Power(3.0, 2000).at(round) for round in (1, 2, 9)] == [3.0, 0.0, 0.0]
    with pytest.raises(InputError, match="power=-1 is out of range; use a finite number of at least 0"):
        Power(3.0, -1)


@pytest.mark.parametrize(
    ("kind", "arguments", "sentence"),
    [
        (Power, (0.1, "x"), "power='x' is not a number; use one such as 0.1 or 2"),
        (Power, (0.1, [2]), "power=[2] is not a number"),
        (Power, (0.1, True), "power=True is not a number"),
        (Power, ("x", 2), "start='x' is not a number"),
        (Step, ("x", 1, 2), "before='x' is not a number"),
        (Step, (1, None, 2), "after=None is not a number"),
        (Step, (1, 1, "x"), "at_round='x' counts rounds; use a whole number such as 20"),
        (Step, (1, 1, 1.5), "at_round=1.5 counts rounds"),
        (Step, (1, 1, True), "at_round=True counts rounds"),
        (Step, (1, 1, 0), "at_round=0 is not a round; use a whole number from 1 on"),
        (Cosine, (1, "x", 3), "end='x' is not a number"),
        (Cosine, (1, 0.5, "x"), "length='x' counts rounds"),
        (Cosine, (1, 0.5, 1), "length=1 leaves a cosine schedule no room; use at least 2 rounds"),
        (Constant, ("x",), "value='x' is not a number"),
    ],
)
def test_a_schedule_of_what_is_no_number_is_refused(kind: Any, arguments: tuple, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        kind(*arguments)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("rate", [0.5, 1, *SCHEDULES], ids=str)
def test_a_valid_rate_is_accepted(rate: Rate) -> None:
    check_rate("rho", rate, positive=True)


@pytest.mark.parametrize(
    ("rate", "positive", "sentence"),
    [
        (0.0, True, "rho=0.0 is out of range; use a finite number greater than 0"),
        (-1, False, "rho=-1 is out of range; use a finite number of at least 0"),
        (Step(1.0, 0.0, at_round=2), True, "rho=0.0 is out of range"),
        (Cosine(0.0, 1.0, length=2), True, "rho=0.0 is out of range"),
        (Power(0.0, 2), True, "rho=0.0 is out of range"),
        (Constant(math.inf), False, "rho=inf is out of range"),
        (None, False, "rho=None is neither a number nor a schedule; use a number such as 0.1"),
        (False, False, "rho=False is neither a number nor a schedule"),
    ],
)
def test_a_rate_out_of_range_is_refused(rate: object, positive: bool, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        check_rate("rho", rate, positive=positive)
    assert sentence in str(caught.value)


def test_zero_is_a_rate_where_it_may_be() -> None:
    check_rate("rho", 0.0, positive=False)


@pytest.mark.parametrize("rate", [0.5, *SCHEDULES], ids=str)
def test_a_rate_survives_the_way_to_a_plain_table_and_back(rate: Rate) -> None:
    assert rate_from("rho", to_plain(rate)) == rate


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"schedule": "sawtooth"}, "rho has schedule='sawtooth'; use one of constant, step, cosine"),
        ({"value": 1.0}, "rho has schedule=None; use one of constant, step, cosine"),
        (
            {"schedule": "step", "before": 1.0},
            "rho has the keys schedule, before; a step schedule has before, after, at_round beside it",
        ),
        ({"schedule": ["step"]}, "rho has schedule=['step']; use one of constant, step, cosine"),
        ({"schedule": "power", "start": 1.0, "power": "x"}, "rho: power='x' is not a number; use one such as 0.1 or 2"),
    ],
)
def test_a_table_that_is_no_schedule_is_refused(table: dict, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        rate_from("rho", table)
    assert sentence in str(caught.value)


@dataclass(frozen=True)
class Own:
    """Hyper-parameters whose ranges are in their types."""

    eta: PositiveRate = 1.0
    decay: Decay = 0.5
    rho: PositiveConstant = 0.1
    start: Literal["local", "global"] = "local"
    size: int = -1  # of which nothing is said


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"eta": 0.0}, "eta=0.0 is out of range; use a finite number greater than 0"),
        ({"decay": 1.0}, "decay=1.0 is out of range; use a number from 0 to below 1"),
        ({"rho": Constant(1.0)}, "rho=Constant(value=1.0) is a schedule; Own needs one number for all rounds"),
        ({"start": "here"}, 'start=\'here\' is unknown; use "local" or "global"'),
    ],
)
def test_a_hyperparameter_that_its_type_does_not_allow_is_refused(values: dict[str, Any], sentence: str) -> None:
    check_fields(Own())
    with pytest.raises(InputError, match=re.escape(sentence)):
        check_fields(Own(**values))
