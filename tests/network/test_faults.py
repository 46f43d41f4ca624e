"""Faults of the simulated network: as often as they were asked for, and the same in every run."""

import pytest

from fedadmm.core.engine import RoundTime
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment, ClientResult
from fedadmm.network.engines import FaultyEngine, fate_of
from fedadmm.network.settings import Faults

ROUNDS, CLIENTS = 50, 40


class Inside:
    """An engine that notes what it was asked for."""

    took = RoundTime()

    def run(self, download, *, buffers, assignments):
        self.asked = list(assignments)
        for assignment in assignments:
            yield ClientResult(assignment.client, (), None, False, True)


def fates(faults: Faults, seed: int = 0) -> list:
    return [fate_of(faults, seed=seed, round=t, client=c) for t in range(1, ROUNDS + 1) for c in range(CLIENTS)]


@pytest.mark.slow
def test_the_same_seed_has_the_same_faults_and_another_has_others() -> None:
    faults = Faults(lose_requests=0.3, duplicate=0.5, delay=0.2)
    assert fates(faults) == fates(faults) != fates(faults, seed=1)


def test_faults_are_as_frequent_as_asked_for() -> None:
    # 2,000 draws: the standard deviation of a share p is at most 0.0112; four of them are 0.045.
    found = fates(Faults(lose_requests=0.1, lose_replies=0.2, duplicate=0.3, delay=0.4, delay_rounds=2))
    shares = [
        sum(not fate.request_arrives for fate in found) / len(found),
        sum(not fate.reply_arrives for fate in found) / len(found),
        sum(fate.doubled for fate in found) / len(found),
        sum(fate.delay > 0 for fate in found) / len(found),
    ]
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.045)
    assert {fate.delay for fate in found} == {0, 1, 2}


def test_no_fault_happens_where_none_is_asked_for() -> None:
    assert set(fates(Faults())) == {(True, True, False, 0)}


def test_a_client_stays_away_for_some_rounds() -> None:
    faults = Faults(away=0.05, away_rounds=4)
    for client in range(CLIENTS):
        here = [fate_of(faults, seed=0, round=t, client=client).request_arrives for t in range(1, ROUNDS + 1)]
        lengths = [len(spell) for spell in "".join("1" if h else "0" for h in here).split("1") if spell]
        assert all(length >= 4 for length in lengths[:-1])
    assert not all(fate_of(faults, seed=0, round=9, client=c).request_arrives for c in range(CLIENTS))


def test_a_run_that_goes_on_knows_what_was_applied() -> None:
    # Client 0 was applied in round 2: its journal begins there, and round 3's request says the same.
    engine = FaultyEngine(Inside(), Faults(), seed=0, applied={0: 2})
    assignments = [Assignment(0, 3, 1), Assignment(1, 3, 1)]
    assert [result.client for result in engine.run((), buffers=None, assignments=assignments)] == [0, 1]
    assert engine._engine.asked == assignments


@pytest.mark.parametrize("name", ["lose_requests", "lose_replies", "duplicate", "delay", "away"])
def test_what_is_no_probability_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}=1.5 is out of range; use a number from 0 to 1"):
        Faults(**{name: 1.5})


def test_a_delay_of_no_rounds_is_refused() -> None:
    with pytest.raises(InputError, match="delay_rounds=0 is out of range"):
        Faults(delay_rounds=0)
