"""What goes wrong on a simulated network, drawn from a stream of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedadmm.core.delivery import NONE, Collection, Journal, Reply, Request, answered
from fedadmm.core.engine import Engine
from fedadmm.core.round import Assignment, Buffers, ClientResult
from fedadmm.core.seeds import stream
from fedadmm.network.settings import Faults
from fedadmm.network.wrapper import EngineWrapper


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

    def run(self, download: Any, *, buffers: Buffers, assignments: Sequence[Assignment]) -> Iterator[ClientResult]:
        """Yield the results whose requests and replies arrive in this round; of the others, what counts anyhow."""
        if not assignments:
            return
        round = assignments[0].round
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
