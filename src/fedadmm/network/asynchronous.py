"""Rounds of a server that does not wait: each is an update with what has arrived, made with the theta of its time."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from fedadmm.core.algorithm import Algorithm
from fedadmm.core.round import Assignment, Buffers, ClientResult
from fedadmm.engine import Engine
from fedadmm.network.async_schedule import Schedule
from fedadmm.network.timing import Rounds, Took


class Sent(NamedTuple):
    """What the server sent out after an update."""

    download: Any
    buffers: Buffers


class AsynchronousRounds(Rounds):
    """What the schedule makes of rounds, and an engine whose clients work on what they were sent.

    A client's update is worked out when it is applied. Its state has not changed meanwhile, for it has one update
    under way at most; so all that must be kept is what was sent to those who are still at work.
    """

    one_by_one = True

    def __init__(
        self, algorithm: Algorithm[Any, Any, Any], schedule: Schedule, *, round: int, sent: Mapping[int, Sent]
    ) -> None:
        """Begin after some rounds; `sent` is what clients still at work were sent, by the round after which it was."""
        self._algorithm, self._schedule = algorithm, schedule
        self._round, self._sent = round, dict(sent)

    def planned(self, round: int) -> list[Assignment]:
        """Return whose uploads an update applies."""
        return [errand.work._replace(round=round) for errand in self._schedule.update(round).errands]

    def ended(self, *, all_came: bool) -> Took:
        """End the update, and return what it took."""
        self._round += 1
        update = self._schedule.update(self._round)
        self._sent = {version: sent for version, sent in self._sent.items() if version in update.under_way}
        staleness = update.staleness
        return Took(update.seconds, sum(staleness) / len(staleness), max(staleness))

    @property
    def under_way(self) -> tuple[int, ...]:
        """The earlier rounds whose theta some clients still work on."""
        return self._schedule.update(self._round).under_way if self._round else ()

    def on(self, engine: Any) -> Any:
        """Return the engine as the clock lets it run: clients work on what they were sent."""
        return _Delayed(engine, self)

    def visits(self, engine: Engine, now: Sent, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the answers, each made with what its client was sent."""
        update = self._schedule.update(assignments[0].round)
        self._sent[update.round - 1] = now
        by_version = groupby(zip(update.errands, assignments, strict=True), key=lambda pair: pair[0].version)
        for version, pairs in by_version:
            then = self._sent[version]
            group = [assignment for _, assignment in pairs]
            for visit in engine.visits(then.download, buffers=then.buffers, assignments=group):
                if visit.newcomer and then is not now:
                    joined = self._algorithm.joining(visit.upload, then=then.download, now=now.download)
                    visit = visit._replace(upload=joined)
                yield visit


class _Delayed:
    """An engine whose clients work on the theta that they were sent, not on the newest."""

    def __init__(self, engine: Engine, rounds: AsynchronousRounds) -> None:
        self._engine, self._rounds = engine, rounds

    def visits(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the answers of the assigned clients, in the order of the assignments."""
        return self._rounds.visits(self._engine, Sent(download, buffers), assignments)

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples; nothing where there are none."""
        return self._engine.evaluate(download, buffers=buffers)

    def close(self) -> None:
        """End what was started."""
        self._engine.close()
