"""What a round's clients achieved, in three numbers each."""

from fedadmm.core.round import ClientStats, achieved
from quadratics import NO_BUFFERS


def test_the_spread_is_over_the_clients_that_were_measured_and_steps_over_all() -> None:
    known = [(3, 0.5), (7, None), (1, 0.1), (2, 0.3), (9, 0.2)]
    stats = [ClientStats(steps, 10, 0.0, NO_BUFFERS, epsilon) for steps, epsilon in known]
    assert achieved(stats) == {
        "epsilon_min": 0.1,
        "epsilon_median": 0.25,
        "epsilon_max": 0.5,
        "steps_min": 1,
        "steps_median": 3,
        "steps_max": 9,
    }


def test_where_nobody_measured_there_is_nothing_to_say() -> None:
    assert achieved([ClientStats(3, 10, 0.0, NO_BUFFERS)]) == {}
    assert achieved([]) == {}
