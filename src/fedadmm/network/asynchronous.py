"""Rounds of a server that does not wait: each is an update with what has arrived, made with the theta of its time."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.engine import Engine, RoundTime
from fedadmm.core.optional import CorrectsLateNewcomers, trait
from fedadmm.core.round import Assignment, Buffers, ClientResult
from fedadmm.network.async_schedule import AsyncSchedule
from fedadmm.network.wrapper import EngineWrapper


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
        self._schedule, self._sent = schedule, dict(sent)

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of an update's clients, each made with what the client was sent."""
        update = self._schedule.update(assignments[0].round)
        newest = update.round - 1
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
        self._sent = {version: sent for version, sent in self._sent.items() if version in update.in_use}
        staleness = update.staleness
        mean = sum(staleness) / len(staleness)
        self.took = RoundTime(update.seconds, mean, max(staleness), in_use=update.in_use)
