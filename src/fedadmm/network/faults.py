"""What goes wrong on a simulated network, drawn from a stream of its own."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationInfo, field_validator

from fedadmm.core.delivery import NONE, Collection, Journal, Reply, Request, answered
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment, ClientResult
from fedadmm.core.seeds import stream
from fedadmm.core.settings import Settings, at_least_one


class Fate(NamedTuple):
    """What happens to one client's messages in one round."""

    request_arrives: bool
    reply_arrives: bool
    doubled: bool  # the request and the reply
    delay: int  # rounds by which the reply is late


class Faults(Settings):
    """How often messages are lost, late or doubled, as probabilities for each client of a round."""

    lose_requests: float = 0.0
    lose_replies: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0  # the reply comes after the round has ended, by up to `delay_rounds` rounds
    delay_rounds: int = 3
    away: float = 0.0  # the client goes away, and gets no request for `away_rounds` rounds
    away_rounds: int = 3

    _check_counts = field_validator("delay_rounds", "away_rounds")(at_least_one)

    @field_validator("lose_requests", "lose_replies", "duplicate", "delay", "away")
    @classmethod
    def _check_probability(cls, value: float, info: ValidationInfo) -> float:
        if not 0 <= value <= 1:
            raise InputError(f"{info.field_name}={value} is no probability; use a number from 0 to 1")
        return value

    def fate(self, *, seed: int, round: int, client: int) -> Fate:
        """Return what happens to a client's messages in a round; no earlier round is needed."""
        first = max(1, round - self.away_rounds + 1)
        away = any(self._draws(seed, past, client)[0] < self.away for past in range(first, round + 1))
        _, lost_request, lost_reply, doubled, late, how_late = self._draws(seed, round, client)
        return Fate(
            request_arrives=not away and bool(lost_request >= self.lose_requests),
            reply_arrives=bool(lost_reply >= self.lose_replies),
            doubled=bool(doubled < self.duplicate),
            delay=1 + int(how_late * self.delay_rounds) if late < self.delay else 0,
        )

    @staticmethod
    def _draws(seed: int, round: int, client: int) -> npt.NDArray[np.float64]:
        return stream(seed, "faults", round, client).random(6)


class FaultyPost:
    """Carries the messages of simulated rounds between the server and the journals that its clients keep.

    A simulated round's number is the round itself. The store holds the state of each client's last applied update,
    and a journal that could not go on from there would be an error.
    """

    def __init__(self, faults: Faults, *, seed: int, applied: Mapping[int, int], go_on_alone: bool = False) -> None:
        """Begin where a run stands: `applied` has the round of each client's last update that was applied.

        go_on_alone: clients compute whether they are asked or not, so what is lost is the message and not the work.
        """
        self._faults, self._seed, self._go_on_alone = faults, seed, go_on_alone
        self._applied = dict(applied)
        self._journals = {client: Journal(acknowledged=round) for client, round in applied.items()}
        self._under_way: dict[int, list[Reply]] = {}  # the round in which they arrive -> late replies

    def delivered(self, assignments: Iterable[Assignment]) -> list[Assignment]:
        """Return the assignments whose requests arrive, each written down in its client's journal."""
        arrived = []
        for assignment in assignments:
            if not assignment.sends:
                arrived.append(assignment)
                continue
            client, round = assignment.client, assignment.round
            fate = self._faults.fate(seed=self._seed, round=round, client=client)
            if fate.request_arrives:
                request = Request(client, round, self._applied.get(client, NONE))
                for _ in range(1 + fate.doubled):
                    self._journals[client] = answered(self._journals.get(client, Journal()), request)
                arrived.append(assignment)
            elif self._go_on_alone:
                arrived.append(assignment._replace(sends=False))
        return arrived

    def collected(
        self, round: int, visits: Iterable[ClientResult], *, clients: Iterable[int]
    ) -> Iterator[ClientResult]:
        """Yield the visits of the clients asked whose replies count; late ones of earlier rounds arrive too."""
        collection = Collection(round, clients=clients)
        for reply in self._under_way.pop(round, []):
            assert not collection.counts(reply), f"{reply} is late in round {round}"
        for visit in visits:
            if visit.silent:
                yield visit
                continue
            fate = self._faults.fate(seed=self._seed, round=round, client=visit.client)
            reply = Reply(visit.client, round)
            if fate.reply_arrives and fate.delay:
                self._under_way.setdefault(round + fate.delay, []).append(reply)
            elif fate.reply_arrives:
                copies = [collection.counts(reply) for _ in range(1 + fate.doubled)]
                assert copies == [True, False][: len(copies)], f"{reply} counts once in round {round}"
                yield visit
                continue
            if self._go_on_alone:
                yield visit._replace(silent=True)

    def applied(self, round: int, clients: Iterable[int]) -> None:
        """Book the clients whose updates a round applied."""
        self._applied.update(dict.fromkeys(clients, round))
