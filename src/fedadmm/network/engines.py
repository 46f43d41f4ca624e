"""Engines around engines: rounds in simulated time, each with a deadline or without, and messages lost or late.

The time is simulated: no clock of this machine is read. What goes wrong is drawn from a stream of its own.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedadmm.core.delivery import NONE, Collection, Journal, Reply, Request, answered
from fedadmm.core.engine import Engine, PersonalOf, RoundTime
from fedadmm.core.participation import Ids
from fedadmm.core.round import Assignment, Buffers, ClientResult
from fedadmm.core.seeds import stream
from fedadmm.network.devices import SimulatedDevices
from fedadmm.network.settings import Faults


class EngineWrapper:
    """Evaluates and ends as the engine inside does; what happens to a round is `run` of a subclass."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.took = RoundTime()

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples; nothing where there are none."""
        return self._engine.evaluate(download, buffers=buffers)

    def evaluate_clients(
        self, download: Any, *, buffers: Buffers, clients: Sequence[int], personal_of: PersonalOf
    ) -> list[dict[str, float]]:
        """Return loss and metrics on the own examples of each of these clients, with the parts that it keeps."""
        return self._engine.evaluate_clients(download, buffers=buffers, clients=clients, personal_of=personal_of)

    def close(self) -> None:
        """End what was started."""
        self._engine.close()


ROUNDING = 1e-9  # of an epoch: a deadline that is met exactly is met


class Timing:
    """How long the clients of a federation take; a device works only while it is on."""

    def __init__(self, devices: SimulatedDevices, *, num_examples: Ids, bytes_down: int, bytes_up: int) -> None:
        self._devices, self._num_examples, self.num_clients = devices, num_examples, len(num_examples)
        self._bytes_down, self._bytes_up = bytes_down, bytes_up

    def end(self, client: int, start: float, *, gradients: int) -> float:
        """Return when a client that is asked at `start` has answered, after this many gradients of single examples."""
        return self._devices.hours(client).end(start, self._seconds_on(client, gradients))

    def planned_end(self, assignment: Assignment, start: float) -> float:
        """Return when a client that is asked at `start` would have answered, after all of its epochs."""
        return self.end(assignment.client, start, gradients=self._planned(assignment))

    def quickest(self, assignment: Assignment) -> float:
        """Return how many seconds a client's epochs and messages take if it is on all the while."""
        return self._seconds_on(assignment.client, self._planned(assignment))

    def within(self, assignment: Assignment, start: float, end: float) -> Assignment:
        """Return what a client that is asked at `start` can do and report by `end`: all of it, or whole epochs."""
        client = assignment.client
        seconds = self._devices.hours(client).between(start, end) - self._exchange(client)
        epochs = seconds * self._devices.device(client).speed / int(self._num_examples[client]) + ROUNDING
        if epochs * int(self._num_examples[client]) >= self._planned(assignment):
            return assignment
        return assignment._replace(epochs=max(0, int(epochs)))

    def _planned(self, assignment: Assignment) -> int:
        gradients = assignment.epochs * int(self._num_examples[assignment.client])
        return gradients if assignment.max_gradients is None else min(gradients, assignment.max_gradients)

    def _seconds_on(self, client: int, gradients: int) -> float:
        return self._exchange(client) + gradients / self._devices.device(client).speed

    def _exchange(self, client: int) -> float:
        return self._devices.device(client).exchange(bytes_down=self._bytes_down, bytes_up=self._bytes_up)


logger = logging.getLogger(__name__)


class TimedEngine(EngineWrapper):
    """An engine whose rounds take simulated time: as long as the slowest awaited client, or until the deadline."""

    def __init__(
        self, engine: Engine, timing: Timing, *, deadline: float | None, late: Literal["less", "drop"], now: float = 0.0
    ) -> None:
        """Begin `now`, when the rounds so far have ended."""
        super().__init__(engine)
        self._timing, self._deadline, self._late, self._now = timing, deadline, late, now
        self._has_warned = False

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results of the clients that can meet the deadline, and work out how long the round took."""
        in_time = assignments if self._deadline is None else self._in_time(assignments, self._deadline)
        end, num_results = self._now, 0
        for result in self._engine.run(download, buffers=buffers, assignments=in_time):
            gradients = result.stats.gradient_evaluations
            end = max(end, self._timing.end(result.client, self._now, gradients=gradients))
            num_results += 1
            yield result
        seconds = end - self._now
        if self._deadline is not None:
            # For a client that does not come the server waits until the deadline.
            seconds = min(seconds, self._deadline) if num_results == len(assignments) else self._deadline
        self._now += seconds
        self.took = RoundTime(seconds)

    def _in_time(self, assignments: Sequence[Assignment], deadline: float) -> list[Assignment]:
        """Return what can be done by the deadline: clients that cannot meet it do less, or are left out."""
        kept = []
        for assignment in assignments:
            possible = self._timing.within(assignment, self._now, self._now + deadline)
            if possible == assignment or (self._late == "less" and possible.epochs):
                kept.append(possible)
        if assignments and not kept and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "round %d: none of its %d clients can meet clock.deadline=%g, so nothing is learned in it; raise the "
                "deadline, ask for fewer epochs%s",
                assignments[0].round,
                len(assignments),
                deadline,
                ', or use late = "less"' if self._late == "drop" else ", or leave it out",
            )
        return kept


class Fate(NamedTuple):
    """What happens to one client's messages in one round."""

    request_arrives: bool
    reply_arrives: bool
    doubled: bool  # the request and the reply
    delay: int  # rounds by which the reply is late


def fate_of(faults: Faults, *, seed: int, round: int, client: int) -> Fate:
    """Return what happens to a client's messages in a round; no earlier round is needed."""
    first = max(1, round - faults.away_rounds + 1)
    away = any(_draws(seed, past, client)[0] < faults.away for past in range(first, round + 1))
    _, lost_request, lost_reply, doubled, late, how_late = _draws(seed, round, client)
    return Fate(
        request_arrives=not away and bool(lost_request >= faults.lose_requests),
        reply_arrives=bool(lost_reply >= faults.lose_replies),
        doubled=bool(doubled < faults.duplicate),
        delay=1 + int(how_late * faults.delay_rounds) if late < faults.delay else 0,
    )


def _draws(seed: int, round: int, client: int) -> npt.NDArray[np.float64]:
    return stream(seed, "faults", round, client).random(6)


class FaultyEngine(EngineWrapper):
    """An engine whose requests and replies are lost, late or doubled on their way.

    Messages go between the server and the journals that its clients keep (core/delivery.py). A simulated round's number
    is the round itself. The store holds the state of each client's last applied update, and a journal that could not go
    on from there would be an error.
    """

    def __init__(
        self, engine: Engine, faults: Faults, *, seed: int, applied: Mapping[int, int], go_on_alone: bool = False
    ) -> None:
        """Begin where a run stands: `applied` has the round of each client's last update that was applied.

        go_on_alone: clients compute whether they are asked or not, so what is lost is the message and not the work.
        """
        super().__init__(engine)
        self._faults, self._seed, self._go_on_alone = faults, seed, go_on_alone
        self._applied = dict(applied)
        self._journals = {client: Journal(acknowledged=round) for client, round in applied.items()}
        self._late: dict[int, list[Reply]] = {}  # the round in which they arrive -> late replies
        self._before = 0, self._applied, self._journals, self._late  # the round that was begun last

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results whose requests and replies arrive in this round; of the others, what counts anyhow."""
        if not assignments:
            return
        round = assignments[0].round
        self._begin(round)
        collection = Collection(round, clients=[asked.client for asked in assignments if asked.sends])
        for reply in self._late.pop(round, []):
            assert not collection.counts(reply), f"{reply} is late in round {round}"
        delivered = self._delivered(assignments)
        for result in self._engine.run(download, buffers=buffers, assignments=delivered):
            if not result.silent and not self._arrives(Reply(result.client, round), collection):
                if not self._go_on_alone:
                    continue
                result = result._replace(silent=True)
            if result.finite and not result.silent:
                self._applied[result.client] = round
            yield result
        self.took = self._engine.took

    def _begin(self, round: int) -> None:
        """Remember how things stand before a round; one that was interrupted begins from there again."""
        if round == self._before[0]:
            _, applied, journals, late = self._before
        else:
            applied, journals, late = self._applied, self._journals, self._late
            self._before = round, applied, journals, late
        self._applied, self._journals = dict(applied), dict(journals)
        self._late = {due: list(replies) for due, replies in late.items()}

    def _delivered(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        """Return the assignments whose requests arrive, each written down in its client's journal."""
        arrived = []
        for assignment in assignments:
            client, round = assignment.client, assignment.round
            if not assignment.sends:
                arrived.append(assignment)
                continue
            fate = fate_of(self._faults, seed=self._seed, round=round, client=client)
            if fate.request_arrives:
                request = Request(client, round, self._applied.get(client, NONE))
                for _ in range(1 + fate.doubled):
                    self._journals[client] = answered(self._journals.get(client, Journal()), request)
                arrived.append(assignment)
            elif self._go_on_alone:
                arrived.append(assignment._replace(sends=False))
        return arrived

    def _arrives(self, reply: Reply, collection: Collection) -> bool:
        """Return whether a reply arrives in its round; it counts once, however often it does."""
        fate = fate_of(self._faults, seed=self._seed, round=reply.number, client=reply.client)
        if not fate.reply_arrives:
            return False
        if fate.delay:
            self._late.setdefault(reply.number + fate.delay, []).append(reply)
            return False
        copies = [collection.counts(reply) for _ in range(1 + fate.doubled)]
        assert copies == [True, False][: len(copies)], f"{reply} counts once in round {reply.number}"
        return True
