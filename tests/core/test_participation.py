"""Who takes part in a round is a function of the round alone, and a rule that cannot work is refused."""

import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedadmm.algorithms import FedAvg
from fedadmm.core.errors import InputError
from fedadmm.core.participation import Chosen, Devices, Independent, Uniform
from fedadmm.core.seeds import stream
from fedadmm.runs.simulation import Simulation
from fedadmm.training.local import LocalTraining
from worlds import made, network, some_data


def _select(rule: Any, round: int, devices: Devices) -> list[int]:
    return rule.select(round, devices=devices, generator=stream(0, "participation", round)).tolist()


@pytest.mark.slow
@given(st.integers(1, 300), st.floats(0.01, 1.0))
def test_uniform_selects_the_same_number_of_different_clients_in_rising_order(
    num_clients: int, fraction: float
) -> None:
    size = round(fraction * num_clients)
    for number in (1, 2):
        ids = _select(Uniform(fraction), number, Devices(num_clients))
        assert len(ids) == size
        assert ids == sorted(set(ids))
        assert not ids or (ids[0] >= 0 and ids[-1] < num_clients)


def test_uniform_favours_nobody() -> None:
    # 2,000 rounds of 2 out of 10: each client is expected 400 times, with a deviation of sqrt(2000 * 0.2 * 0.8) = 18.
    counts = Counter(i for t in range(2000) for i in _select(Uniform(0.2), t, Devices(10)))
    assert all(abs(counts[client] - 400) < 4 * 18 for client in range(10))


def test_the_cost_of_uniform_does_not_grow_with_the_number_of_clients() -> None:
    # Ten of a million million clients: anything that touched each of them would never return.
    began = time.perf_counter()
    ids = _select(Uniform(1e-11), 1, Devices(10**12))
    assert len(ids) == 10
    assert time.perf_counter() - began < 1.0


@pytest.mark.parametrize(
    ("fraction", "num_clients", "sentence"),
    [
        (0.001, 100, "participation=0.001 selects none of 100 clients; use at least 0.01"),
        (0.0, 100, "participation=0.0 is not a fraction; use a number above 0 and up to 1"),
        (1.5, 100, "participation=1.5 is not a fraction; use a number above 0 and up to 1"),
        (-0.1, 100, "participation=-0.1 is not a fraction"),
        (float("nan"), 100, "participation=nan is not a fraction"),
    ],
)
def test_a_fraction_that_selects_nobody_is_refused(fraction: float, num_clients: int, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        Uniform(fraction).check(num_clients)
    assert sentence in str(caught.value)


def test_the_remedy_of_a_refused_fraction_works() -> None:
    for num_clients in range(1, 200):
        Uniform(float(f"{1 / num_clients:g}")).check(num_clients)
    Uniform(1.0).check(1)


def test_independent_clients_come_as_often_as_their_probability() -> None:
    rule = Independent((0.0, 0.1, 0.5, 1.0))
    rule.check(4)
    rounds = [_select(rule, t, Devices(4)) for t in range(2000)]
    counts = Counter(client for ids in rounds for client in ids)
    assert (counts[0], counts[3]) == (0, 2000)
    assert abs(counts[1] - 200) < 4 * 13.5  # sqrt(2000 * 0.1 * 0.9) = 13.4
    assert abs(counts[2] - 1000) < 4 * 22.4  # sqrt(2000 * 0.25) = 22.4
    assert all(ids == sorted(ids) for ids in rounds)


def test_a_round_of_independent_clients_may_be_empty() -> None:
    assert [] in [_select(Independent((0.1, 0.1)), t, Devices(2)) for t in range(20)]


@pytest.mark.parametrize(
    ("probabilities", "sentence"),
    [
        ((0.5,), "participation lists 1 probabilities for 3 clients; give one for each"),
        ((0.5, 1.5, 0.0), "participation of client 1 is 1.5; use a probability from 0 to 1"),
        ((0.5, 0.5, float("nan")), "participation of client 2 is nan; use a probability from 0 to 1"),
        ((0.0, 0.0, 0.0), "participation is 0 for every client; give at least one a positive probability"),
    ],
)
def test_probabilities_that_cannot_work_are_refused(probabilities: tuple, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Independent(probabilities).check(3)


def test_a_users_function_chooses_by_round_generator_and_facts() -> None:
    devices = Devices(4, {"energy": np.array([0.1, 0.9, 0.5, 0.8])})

    def rested(round: int, generator: np.random.Generator, devices: Devices) -> list[int]:
        awake = np.flatnonzero(devices.facts["energy"] > 0.4)
        return [int(generator.choice(awake)), 0] if round == 2 else list(awake[::-1])

    assert _select(Chosen(rested), 1, devices) == [1, 2, 3]
    assert _select(Chosen(rested), 2, devices)[0] == 0


def test_a_users_function_may_choose_nobody() -> None:
    assert _select(Chosen(lambda *_: []), 1, Devices(4)) == []
    assert _select(Chosen(lambda *_: np.array([])), 1, Devices(4)) == []


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([0, 4], "participation chose client 4 in round 7; ids run from 0 to 3"),
        ([-1, 2], "participation chose client -1 in round 7; ids run from 0 to 3"),
        ([2, 1, 2], "participation chose a client twice in round 7; return each id once"),
        ([0.5], "participation chose float64 values in round 7; return whole client ids"),
        ([[0, 1]], "participation chose lists in round 7; return whole client ids"),
        ([True, False, True, False], "participation chose bool values in round 7; return whole client ids"),
    ],
)
def test_a_choice_that_is_no_set_of_clients_is_refused(ids: list, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        _select(Chosen(lambda *_: ids), 7, Devices(4))


def _simulation(rule: Any) -> Simulation:
    return Simulation(
        FedAvg(),
        model=made(network),
        data=some_data([8, 10, 6, 12, 8]),
        local=LocalTraining(epochs="1..4", batch_size=6),
        participation=rule,
        seed=5,
        engine="serial",
    )


@pytest.mark.parametrize(
    "rule",
    [0.4, [0.3, 0.6, 0.5, 0.9, 0.2], lambda t, generator, d: [int(generator.integers(5))]],
    ids=["fraction", "probabilities", "function"],
)
def test_a_round_is_known_without_the_rounds_before_it(rule: Any) -> None:
    played, fresh = _simulation(rule), _simulation(rule)
    before = fresh.assignments(4)
    for _ in range(3):
        played.advance()
    assert played.assignments(4) == fresh.assignments(4) == before
    assert tuple(assignment.client for assignment in before) == played.advance().clients
    assert len({tuple(a.client for a in fresh.assignments(round)) for round in range(1, 20)}) > 3


class Stubborn:
    """A rule that is no function."""

    def __init__(self, *ids: Any) -> None:
        self.ids = ids

    def select(self, round: int, *, devices: Devices, generator: np.random.Generator) -> Any:
        return [len(self.ids) // client for client in self.ids]

    def check(self, num_clients: int) -> None:
        pass


def test_a_rule_of_ones_own_is_held_to_what_a_function_is() -> None:
    assert _simulation(Stubborn(1, 4)).advance().clients == (0, 2)
    with pytest.raises(InputError, match="participation chose a client twice in round 1; return each id once"):
        _simulation(Stubborn(1, 1)).advance()
    with pytest.raises(
        InputError, match=r"select of participation test_participation:Stubborn, in round 1, fails; corr"
    ):
        _simulation(Stubborn(1, 0)).advance()


@pytest.mark.parametrize("rule", [["a", "b"], [[0.5], [0.2]], np.array(0.5), [[0.5], [0.2, 0.1]]], ids=repr)
def test_what_is_no_list_of_numbers_is_no_rule(rule: Any) -> None:
    with pytest.raises(
        InputError, match=r"(?s)participation=.* is not a rule; use a fraction, a list of probabilities"
    ):
        _simulation(rule)
    assert _simulation(np.float32(0.4)).advance().clients == _simulation(0.4).advance().clients


def test_facts_of_other_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="devices has 'pace' with 2 values; give a number for each of 5 clients"):
        Simulation(
            FedAvg(),
            model=made(network),
            data=some_data([8] * 5),
            devices={"pace": [[1], [1, 2]]},
            local=LocalTraining(epochs=1),
            participation=1.0,
            seed=0,
        )


def test_every_client_draws_its_epochs_anew_in_every_round() -> None:
    rounds = [_simulation(1.0).assignments(round) for round in range(1, 20)]
    for round, assignments in enumerate(rounds, start=1):
        for client, assignment in enumerate(assignments):
            assert assignment[:3] == (client, round, int(stream(5, "work", round, client).integers(1, 5)))
    assert len({tuple(a.epochs for a in assignments) for assignments in rounds}) > 15
    assert max(len({a.epochs for a in assignments}) for assignments in rounds) > 2
