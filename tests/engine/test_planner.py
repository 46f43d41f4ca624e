"""What each client is asked to do in a round."""

from typing import Any

from fedadmm import Devices, FedAvg, FedPD, LocalTraining
from fedadmm.core.participation import Uniform
from fedadmm.engine.planner import Planner


def planner(*, algorithm: Any = None, local: Any = None, seed: int = 3, facts: Any = None) -> Planner:
    return Planner(
        algorithm or FedAvg(),
        participation=Uniform(0.5),
        local=local or LocalTraining(epochs="1..50"),
        devices=Devices(20, facts or {}),
        seed=seed,
    )


def test_work_is_a_function_of_seed_round_and_client_and_not_of_who_was_asked_before() -> None:
    asked = [(round, client) for round in (1, 2) for client in range(20)]
    rising, falling = planner(), planner()
    ahead = {key: rising.assignment(*key) for key in asked}
    back = {key: falling.assignment(*key) for key in reversed(asked)}
    assert ahead == back
    assert len({assignment.epochs for assignment in ahead.values()}) > 10
    assert [planner(seed=4).assignment(*key) for key in asked] != list(ahead.values())


def test_a_device_has_the_time_that_its_speed_gives_it() -> None:
    local = LocalTraining(epochs=3, seconds=2.0, speed="speed")
    # 2 s at 25.5 gradients a second.
    asked = planner(local=local, facts={"speed": [10.0, 25.5]}).assignment(7, 1, sends=False)
    assert (asked.client, asked.round, asked.epochs, asked.max_gradients) == (1, 7, 3, 51)
    assert (asked.informed, asked.sends) == (True, False)


def test_a_plan_has_the_work_of_those_who_were_selected() -> None:
    plan = planner().plan(5)
    assert len(plan) == 10
    assert plan == [planner().assignment(5, assignment.client) for assignment in plan]
    assert plan == planner().assigned(5, [assignment.client for assignment in plan])


def test_where_communication_is_skipped_all_compute_and_who_was_heard_last_is_informed() -> None:
    ours = planner(algorithm=FedPD(skip_probability=0.5))
    plans = [ours.plan(round, informed=[1, 4]) for round in range(1, 20)]
    assert all([assignment.client for assignment in plan] == list(range(20)) for plan in plans)
    assert {sum(assignment.sends for assignment in plan) for plan in plans} == {0, 10}
    assert {tuple(a.client for a in plan if a.informed) for plan in plans} == {(1, 4)}
    assert all(assignment.informed for assignment in ours.plan(1))
