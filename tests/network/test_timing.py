"""Simulated seconds, worked out by hand on three devices."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment, Buffers, ClientResult, ClientStats
from fedadmm.network.devices import Hours, SimulatedDevices
from fedadmm.network.engines import TimedEngine, Timing
from fedadmm.network.settings import Availability, Clock

# Three devices with 100 examples each; 1,000 bytes down and 500 up.
#   client 0: 0.5 + 1000/1000 + 500/250 + 0.5 = 4 s for the messages, 100/50 = 2 s for an epoch
#   client 1: 0 + 1000/500  + 500/500 = 3 s, 100/100 = 1 s
#   client 2: 0 + 1000/2000 + 500/1000 = 1 s, 100/10 = 10 s
DEVICES = {
    "speed": [50.0, 100.0, 10.0],
    "upload": [250.0, 500.0, 1000.0],
    "download": [1000.0, 500.0, 2000.0],
    "latency": [0.5, 0.0, 0.0],
}


def timing(**options):
    devices = SimulatedDevices(Clock(**DEVICES, **options), seed=0)
    return Timing(devices, num_examples=np.array([100, 100, 100]), bytes_down=1000, bytes_up=500)


class Inside:
    """An engine whose clients do what they are asked for, or `epochs`."""

    def __init__(self, epochs=None):
        self.epochs, self.asked = epochs, []

    def run(self, download, *, buffers, assignments):
        self.asked = [(a.client, a.epochs) for a in assignments]
        for client, epochs in self.asked:
            stats = ClientStats(1, 100 * (self.epochs or epochs), 0.0, Buffers(None, None))
            yield ClientResult(client, (), stats, False, True)


def timed(inside, **options):
    return TimedEngine(inside, timing(), **{"deadline": None, "late": "less"} | options)


def play(engine, assignments):
    """Play a round, and return who was left to do how much, and what the round took."""
    results = list(engine.run((), buffers=None, assignments=assignments))
    asked = engine._engine.asked
    assert [result.client for result in results] == [client for client, _ in asked]
    return asked, engine.took.simulated_seconds


def test_a_client_takes_its_messages_and_its_gradients():
    assert [timing().end(client, 10.0, gradients=200) for client in range(3)] == [18.0, 15.0, 31.0]
    assert timing().planned_end(Assignment(2, 1, epochs=3), 0.0) == 31.0


def test_a_round_lasts_as_long_as_its_slowest_client():
    engine = timed(Inside())
    assert play(engine, [Assignment(0, 1, 1), Assignment(1, 1, 5)]) == ([(0, 1), (1, 5)], 8.0)
    assert play(engine, [Assignment(0, 1, 1), Assignment(2, 1, 1)]) == ([(0, 1), (2, 1)], 11.0)
    assert play(engine, []) == ([], 0.0)


@pytest.mark.parametrize(
    ("deadline", "late", "left", "seconds"),
    [
        (31.0, "less", [(0, 5), (1, 5), (2, 3)], 31.0),  # client 2: 1 + 3 x 10, to the second
        (30.9, "less", [(0, 5), (1, 5), (2, 2)], 21.0),
        (11.0, "less", [(0, 3), (1, 5), (2, 1)], 11.0),
        (10.9, "less", [(0, 3), (1, 5)], 10.9),  # client 2 cannot do one epoch: the server waits in vain
        (2.0, "less", [], 2.0),
        (31.0, "drop", [(0, 5), (1, 5), (2, 3)], 31.0),
        (30.9, "drop", [(0, 5), (1, 5)], 30.9),
        (14.0, "drop", [(0, 5), (1, 5)], 14.0),
        (13.9, "drop", [(1, 5)], 13.9),
    ],
)
def test_a_deadline_cuts_work_or_clients(deadline, late, left, seconds):
    asked = [Assignment(0, 1, 5), Assignment(1, 1, 5), Assignment(2, 1, 3)]
    assert play(timed(Inside(), deadline=deadline, late=late), asked) == (left, seconds)


def test_who_does_less_than_it_was_asked_for_is_done_earlier():
    # A solver that stops early: client 2 was asked for 3 epochs and does 1.
    assert play(timed(Inside(epochs=1)), [Assignment(2, 1, 3)]) == ([(2, 3)], 11.0)


# On for 2 s and for 3 s of every 10.
HOURS = Hours(((1.0, 3.0), (5.0, 8.0)), 10.0)


@pytest.mark.parametrize(
    ("start", "seconds", "end"),
    [
        (0.0, 0.0, 0.0),
        (0.0, 1.0, 2.0),
        (0.0, 2.0, 3.0),
        (0.0, 2.5, 5.5),
        (2.0, 1.0, 3.0),
        (2.0, 1.5, 5.5),
        (4.0, 3.0, 8.0),
        (4.0, 3.5, 11.5),  # from 5 to 8, and half a second of the next period
        (8.5, 5.0, 18.0),
        (0.0, 25.0, 48.0),  # five whole periods
    ],
)
def test_a_device_works_only_while_it_is_on(start, seconds, end):
    assert HOURS.end(start, seconds) == pytest.approx(end)
    assert HOURS.between(start, end) == pytest.approx(seconds)


@given(st.floats(0, 1e4), st.floats(1e-3, 1e4), st.lists(st.floats(0, 1), min_size=2, max_size=8, unique=True))
def test_the_end_of_work_is_when_the_device_was_on_for_as_long(start, seconds, edges):
    edges = sorted(edges)
    pairs = zip(edges[::2], edges[1::2], strict=False)
    hours = Hours(tuple((7 * since, 7 * until) for since, until in pairs if until - since > 1e-3), 7.0)
    if hours.intervals:
        end = hours.end(start, seconds)
        assert end >= start + seconds
        assert hours.between(start, end) == pytest.approx(seconds, abs=1e-6, rel=1e-6)


def test_a_deadline_counts_the_seconds_in_which_a_device_is_on():
    devices = SimulatedDevices(
        Clock(speed=10, availability={"period": 10, "trace": "hours.csv"}), seed=0, hours=[HOURS, HOURS]
    )
    of_ten_examples = Timing(devices, num_examples=np.array([10, 10]), bytes_down=0, bytes_up=0)
    asked = Assignment(0, 1, epochs=9)
    assert of_ten_examples.within(asked, 0.0, 10.0).epochs == 5
    assert of_ten_examples.within(asked, 3.0, 5.5).epochs == 0
    assert of_ten_examples.planned_end(Assignment(1, 1, epochs=4), 0.0) == 7.0


def test_without_bandwidth_messages_take_no_time():
    devices = SimulatedDevices(Clock(speed=10), seed=0)
    assert devices.device(5) == (10.0, math.inf, math.inf, 0.0)
    assert devices.device(5).exchange(bytes_down=10**9, bytes_up=10**9) == 0


SPREAD = {"distribution": "log_uniform", "low": 1, "high": 20}


def test_a_clients_device_is_drawn_once_from_a_stream_of_its_own():
    clock = Clock(speed=SPREAD, upload={"distribution": "lognormal", "median": 1e6, "sigma": 0.5})
    forwards, backwards = SimulatedDevices(clock, seed=1), SimulatedDevices(clock, seed=1)
    ours = [forwards.device(client) for client in range(20)]
    assert ours == [backwards.device(client) for client in range(19, -1, -1)][::-1]
    assert len({device.speed for device in ours}) == 20
    assert ours[0] != SimulatedDevices(clock, seed=2).device(0)
    without = SimulatedDevices(clock.replace(upload=1e6), seed=1)
    assert [without.device(client).speed for client in range(20)] == [device.speed for device in ours]


def test_who_has_the_time_for_few_gradients_is_done_with_them():
    # Client 2 is asked for 3 epochs and stops after 150 gradients: 1 + 150/10 s.
    asked = Assignment(2, 1, epochs=3, max_gradients=150)
    assert timing().planned_end(asked, 0.0) == 16.0
    assert timing().within(asked, 0.0, 16.0) == asked
    assert timing().within(asked, 0.0, 15.9).epochs == 1


@pytest.mark.parametrize("share", [0.3, {"distribution": "uniform", "low": 0.1, "high": 0.9}])
def test_a_share_of_the_time_is_that_share_for_each_at_a_time_of_its_own(share):
    devices = SimulatedDevices(Clock(speed=1, availability={"period": 100, "share": share}), seed=0)
    hours = [devices.hours(client) for client in range(50)]
    assert len({each.intervals for each in hours}) == 50
    if share == 0.3:
        assert [each.on for each in hours] == pytest.approx([30] * 50)
    else:
        assert 10 <= min(each.on for each in hours) < 20 < 80 < max(each.on for each in hours) <= 90
    assert all(0 <= since < until <= 100 for each in hours for since, until in each.intervals)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "the clock has no speed; give examples per second"),
        ({"speed": 0}, "speed=0.0 is out of range; use a finite number greater than 0"),
        ({"speed": 1, "deadline": -1}, "deadline=-1.0 is out of range"),
        ({"speed": 1, "latency": -1}, "latency=-1.0 is out of range; use a finite number of at least 0"),
        ({"speed": 1, "late": "never"}, "late='never' is not valid"),
        ({"speed": {"distribution": "normal"}}, "distribution='normal' is not valid"),
        ({"speed": {"distribution": "uniform", "low": 1}}, "a uniform distribution has low and high, not low"),
        ({"speed": SPREAD | {"low": 0}}, "low=0.0 is out of range"),
        ({"speed": SPREAD | {"low": 30}}, "low=30 is above high=20; exchange them"),
        ({"speed": 1, "availability": {"period": 10}}, "availability needs a share or a trace"),
        (
            {"speed": 1, "availability": {"period": 10, "share": 2}},
            "share=2.0 is out of range; use a number above 0 and up to 1",
        ),
        ({"speed": 1, "availability": {"period": 0, "share": 1}}, "period=0.0 is out of range"),
        (
            {"speed": 1, "asynchronous": True},
            r"asynchronous=True does not say how .* write asynchronous = {buffer = 5}",
        ),
        ({"speed": 1, "asynchronous": 3}, "command line --set clock.asynchronous.buffer=3"),
        ({"speed": 1, "asynchronous": "yes"}, "asynchronous='yes' does not say how many uploads"),
        ({"speed": 1, "asynchronous": False}, "asynchronous=False says nothing; leave it out"),
    ],
)
def test_a_mistake_in_the_clock_is_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        Clock(**settings)


def test_settings_that_say_the_same_are_the_same():
    assert Clock(speed=5) == Clock(speed=5.0)
    assert Availability(period=1, share=SPREAD | {"low": 0.1, "high": 1}).share.high == 1.0
