"""When an asynchronous server updates, and with what, worked out by hand on three clients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedadmm.core.delivery import NONE, Journal, Request, answered
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment
from fedadmm.network.asynchronous import AsyncSchedule
from fedadmm.network.devices import SimulatedDevices
from fedadmm.network.engines import Timing
from fedadmm.network.settings import Asynchronous, Clock


def schedule(seconds, *, buffer, max_staleness=None, at_work=None, seed=0):
    """Return the schedule of clients whose visits take so many seconds."""
    devices = SimulatedDevices(Clock(speed=1.0), seed=0)
    return AsyncSchedule(
        Timing(devices, num_examples=np.array(seconds), bytes_down=0, bytes_up=0),
        Asynchronous(buffer=buffer, max_staleness=max_staleness),
        at_work=at_work or len(seconds),
        assign=lambda number, client: Assignment(client, number, epochs=1),
        seed=seed,
    )


def told(schedule, updates):
    """Return, for each update, when it is, and who reports with the theta after which round."""
    now, lines = 0.0, []
    for number in range(1, updates + 1):
        update = schedule.update(number)
        now += update.seconds
        lines.append((now, [(arrival.client, arrival.version) for arrival in update.arrivals]))
    return lines


def test_every_upload_is_an_update():
    # Clients that take 2, 3 and 7 seconds. Each gets the theta that its own upload made.
    assert told(schedule([2, 3, 7], buffer=1), 8) == [
        (2, [(0, 0)]),
        (3, [(1, 0)]),
        (4, [(0, 1)]),
        (6, [(0, 3)]),  # client 0 and 1 both report at 6: the lower id first
        (6, [(1, 2)]),
        (7, [(2, 0)]),  # the server has moved on by five updates meanwhile
        (8, [(0, 4)]),
        (9, [(1, 5)]),
    ]
    assert schedule([2, 3, 7], buffer=1).update(6).staleness == [5]


def test_the_server_waits_for_two_uploads():
    # At 3 clients 0 and 1 have reported, and start again; at 6 both again; client 2 reports at 7, and waits for one.
    lines = told(schedule([2, 3, 7], buffer=2), 4)
    assert lines == [(3, [(0, 0), (1, 0)]), (6, [(0, 1), (1, 1)]), (8, [(2, 0), (0, 2)]), (10, [(1, 2), (0, 3)])]
    assert schedule([2, 3, 7], buffer=2).update(3).staleness == [2, 0]
    assert schedule([2, 3, 7], buffer=2).update(2).in_use == (0,)


def test_the_server_waits_for_who_would_be_too_late():
    # Client 2 may miss one update. The first is at 2 without it; the second has to wait until 7, and takes all in.
    lines = told(schedule([2, 3, 7], buffer=1, max_staleness=1), 3)
    assert lines == [(2, [(0, 0)]), (7, [(1, 0), (2, 0), (0, 1)]), (9, [(0, 2)])]


def test_with_no_staleness_allowed_everyone_is_awaited():
    assert told(schedule([2, 3, 7], buffer=1, max_staleness=0), 2) == [
        (7, [(0, 0), (1, 0), (2, 0)]),
        (14, [(0, 1), (1, 1), (2, 1)]),
    ]


def test_an_earlier_update_can_be_asked_for_again():
    played = schedule([2, 3, 7], buffer=1)
    sixth = played.update(6)
    assert played.update(2) == schedule([2, 3, 7], buffer=1).update(2)
    assert played.update(6) == sixth


@pytest.mark.slow
@given(seconds=st.lists(st.integers(1, 40), min_size=1, max_size=8), data=st.data(), seed=st.integers(0, 5))
def test_whatever_the_speeds_nobody_is_too_late_and_everybody_has_one_update_under_way(seconds, data, seed):
    at_work = data.draw(st.integers(1, len(seconds)))
    buffer = data.draw(st.integers(1, at_work))
    limit = data.draw(st.none() | st.integers(0, 3))
    played = schedule(seconds, buffer=buffer, max_staleness=limit, at_work=at_work, seed=seed)
    journals: dict[int, Journal] = {}
    applied: dict[int, int] = {}
    for number in range(1, 30):
        update = played.update(number)
        clients = [arrival.client for arrival in update.arrivals]
        assert len(clients) == len(set(clients)) >= buffer
        assert limit is not None or len(clients) == buffer
        assert update.seconds >= 0
        assert all(0 <= late <= (number if limit is None else limit) for late in update.staleness)
        assert all(version < number for version in update.in_use)
        for arrival in update.arrivals:
            # The exactly-once numbers of core/delivery.py: a request bears the number of the update after its theta.
            request = Request(arrival.client, arrival.version + 1, applied.get(arrival.client, NONE))
            journals[arrival.client] = answered(journals.get(arrival.client, Journal()), request)
            assert journals[arrival.client].pending == request.number
            applied[arrival.client] = request.number


def test_who_is_sent_out_is_drawn_among_those_that_are_free():
    played = schedule([1] * 30, buffer=3, at_work=6)
    busy = {arrival.client for arrival in played.update(1).arrivals}
    seen = set()
    for number in range(1, 200):
        seen |= {arrival.client for arrival in played.update(number).arrivals}
    assert seen == set(range(30))
    assert len(busy) == 3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"buffer": 0}, "buffer=0 is out of range"),
        ({"buffer": 1, "max_staleness": -1}, "max_staleness=-1 is out of range"),
        ({}, "buffer is missing"),
    ],
)
def test_a_mistake_in_the_settings_is_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        Clock(speed=1, asynchronous=settings)


def test_a_deadline_and_no_rounds_do_not_go_together():
    with pytest.raises(InputError, match="a deadline ends a round, and an asynchronous server waits for no round"):
        Clock(speed=1, deadline=3, asynchronous={"buffer": 1})
