"""Rounds of a server that does not wait: who reports when, and updates made with the theta that was sent.

The schedule is events in simulated time, which no model's values change.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.engine import Engine, RoundTime
from fedadmm.core.optional import CorrectsLateNewcomers, trait
from fedadmm.core.participation import Ids
from fedadmm.core.round import Assignment, Buffers, ClientResult, never
from fedadmm.core.seeds import stream
from fedadmm.engine.planner import Informed, LastRound
from fedadmm.network.engines import EngineWrapper, Timing
from fedadmm.network.settings import Asynchronous

Assign = Callable[[int, int], Assignment]  # of (round, client)


class ClientAtWork(NamedTuple):
    """A client at work: it reports at `end`. They are in the order of their ends, then of their ids."""

    end: float
    client: int
    version: int  # the updates that the server had done when it sent theta
    assignment: Assignment


class Update(NamedTuple):
    """One update of the server."""

    round: int
    seconds: float  # since the update before
    arrivals: tuple[ClientAtWork, ...]  # whose uploads it applies: the oldest theta first, then rising ids
    in_use: tuple[int, ...]  # the versions that other clients still work on, rising

    @property
    def staleness(self) -> list[int]:
        """How many updates each upload missed."""
        return [self.round - 1 - arrival.version for arrival in self.arrivals]


class AsyncSchedule:
    """The updates of an asynchronous run, one after the other; a resumed run replays them in no time."""

    def __init__(self, timing: Timing, settings: Asynchronous, *, at_work: int, assign: Assign, seed: int) -> None:
        """Begin; `at_work` clients work at a time, and assign(round, client) says what one does."""
        self._timing, self._settings, self._seed = timing, settings, seed
        self._num_clients, self._at_work, self._assign = timing.num_clients, at_work, assign
        self._updates = self._played()
        self._last: Update | None = None

    def plan(self, round: int, *, informed: Informed = None, last_round: LastRound = never) -> list[Assignment]:
        """Return the assignments whose uploads an update applies; they were made when the clients were sent theta."""
        asked = [arrival.assignment for arrival in self.update(round).arrivals]
        return [assignment._replace(round=round, last_round=last_round(assignment.client)) for assignment in asked]

    def update(self, round: int) -> Update:
        """Return an update; the cost is that of the updates since the last one that was asked for."""
        if self._last is not None and round < self._last.round:
            self._updates, self._last = self._played(), None
        while self._last is None or self._last.round < round:
            self._last = next(self._updates)
        return self._last

    def _played(self) -> Iterator[Update]:
        now, number = 0.0, 0
        queue: list[ClientAtWork] = []
        while True:
            number += 1
            for client in self._sent_out(number, busy=sorted(waiting.client for waiting in queue)):
                assignment = self._assign(number, client)
                end = self._timing.planned_end(assignment, now)
                heapq.heappush(queue, ClientAtWork(end, client, number - 1, assignment))
            before = now
            arrivals: list[ClientAtWork] = []
            overdue = self._overdue(queue, number)
            while len(arrivals) < self._settings.buffer or overdue:
                arrival = heapq.heappop(queue)
                now = max(now, arrival.end)
                arrivals.append(arrival)
                overdue.discard(arrival.client)
            arrivals.sort(key=lambda arrival: (arrival.version, arrival.client))
            in_use = sorted({waiting.version for waiting in queue})
            yield Update(number, now - before, tuple(arrivals), tuple(in_use))

    def _sent_out(self, number: int, *, busy: list[int]) -> list[int]:
        """Return the free clients that get to work with the newest theta, drawn as those of a round are."""
        generator = stream(self._seed, "participation", number)
        free, size = self._num_clients - len(busy), self._at_work - len(busy)
        ids: Ids = np.sort(generator.choice(free, size=size, replace=False, shuffle=False))
        for client in busy:  # from a place among the free to an id
            ids[ids >= client] += 1
        return [int(client) for client in ids]

    def _overdue(self, queue: list[ClientAtWork], number: int) -> set[int]:
        """Return the clients that this update must not miss."""
        limit = self._settings.max_staleness
        if limit is None:
            return set()
        return {waiting.client for waiting in queue if number - 1 - waiting.version >= limit}


class SentModel(NamedTuple):
    """What the server sent out after an update."""

    download: Any
    buffers: Buffers


class AsynchronousEngine(EngineWrapper):
    """An engine whose clients work on the theta that they were sent, not on the newest.

    A client's update is worked out when it is applied. Its state has not changed meanwhile, because it has one update
    under way at most; so all that must be kept is what was sent to those who are still at work.
    """

    def __init__(
        self, engine: Engine, algorithm: AnyAlgorithm, schedule: AsyncSchedule, *, sent: Mapping[int, SentModel]
    ) -> None:
        """Begin; `sent` is what clients still at work were sent, by the number of updates before it."""
        super().__init__(engine)
        self._corrects = trait(algorithm, CorrectsLateNewcomers)
        self._schedule, self._sent, self._in_use = schedule, dict(sent), tuple(sent)
        self._round = 0  # that was begun last

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of an update's clients, each made with what the client was sent."""
        update = self._schedule.update(assignments[0].round)
        newest = update.round - 1
        if update.round > self._round:  # else the round is played again, after one that was interrupted
            self._round, self._sent = update.round, {v: sent for v, sent in self._sent.items() if v in self._in_use}
        self._sent[newest] = SentModel(download, buffers)
        by_version = groupby(zip(update.arrivals, assignments, strict=True), key=lambda pair: pair[0].version)
        for version, pairs in by_version:
            then = self._sent[version]
            group = [assignment for _, assignment in pairs]
            for result in self._engine.run(then.download, buffers=then.buffers, assignments=group):
                if self._corrects is not None and result.first_visit and version != newest:
                    upload = self._corrects.late_upload(result.upload, then=then.download, now=download)
                    result = result._replace(upload=upload)
                yield result
        self._in_use = update.in_use
        staleness = update.staleness
        mean = sum(staleness) / len(staleness)
        self.took = RoundTime(update.seconds, mean, max(staleness), in_use=update.in_use)
