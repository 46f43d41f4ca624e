"""What each client is asked to do in a round."""

from fedadmm.training.local import LocalTraining
from fedadmm.training.workload import Workload


def test_work_is_a_function_of_seed_round_and_client_and_not_of_who_was_asked_before() -> None:
    asked = [(round, client) for round in (1, 2) for client in range(20)]
    rising = Workload(LocalTraining(epochs="1..50"), seed=3)
    falling = Workload(LocalTraining(epochs="1..50"), seed=3)
    ahead = {key: rising.assignment(*key) for key in asked}
    back = {key: falling.assignment(*key) for key in reversed(asked)}
    assert ahead == back
    assert len({assignment.epochs for assignment in ahead.values()}) > 10
    other = Workload(LocalTraining(epochs="1..50"), seed=4)
    assert [other.assignment(*key) for key in asked] != list(ahead.values())


def test_a_device_has_the_time_that_its_speed_gives_it() -> None:
    local = LocalTraining(epochs=3, seconds=2.0, speed="speed")
    workload = Workload(local, seed=0, facts={"speed": [10.0, 25.5]})
    # 2 s at 25.5 gradients a second.
    assert workload.assignment(7, 1, sends=False) == (1, 7, 3, 51, True, False)
