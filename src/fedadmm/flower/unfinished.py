"""What a server writes down of a round that does not count yet: one that was killed goes on with this, and asks nobody
for it again.

    OpenSum   before clients are asked to train, that they may mask their updates of this round from now on; before they
              are asked to take the masks off, the masked sum and of whom it is. A restarted server unmasks this sum,
              or none: if it does not know the sum, the round is void, and updates of another round are asked for.
    Release   before the noised model of a private round goes anywhere, all that is released of it: noise that was drawn
              is not drawn again.
"""

import json
from typing import Any, NamedTuple

import numpy as np
import torch

from fedadmm.core.algorithm import Message
from fedadmm.core.round import Buffers, RoundSummary, ServerCheckpoint
from fedadmm.secure.fixed_point import Words
from fedadmm.secure.graph import Graph
from fedadmm.secure.protocol import Keys


class Collected(NamedTuple):
    """The answers to the requests of a round, whose uploads are masked."""

    senders: tuple[int, ...]  # rising
    total: tuple[Words, ...]  # the sum of what they have sent, under the masks that are left
    problems: dict[int, str]  # client -> why its answer is no update
    digests: dict[int, str]  # client -> that of the state which it has now


class OpenSum(NamedTuple):
    """A sum under masks, from the agreement on them on."""

    number: int
    round: int
    selected: tuple[int, ...]
    threshold: int
    graph: Graph
    keys: dict[int, Keys]
    collected: Collected | None = None  # None: clients were asked to train, and nobody to unmask

    def fields(self) -> Message:
        """Return the sum as a message that a store can keep."""
        table = self._asdict() | {"keys": {client: [key.hex() for key in own] for client, own in self.keys.items()}}
        total: tuple[Words, ...] = ()
        if self.collected is not None:
            total = self.collected.total
            table["collected"] = self.collected._asdict() | {"total": [word.dtype.name for word in total]}
        return json.dumps(table), *(torch.from_numpy(word.view(np.uint8)) for word in total)

    @classmethod
    def of(cls, fields: Message) -> "OpenSum":
        """Return the sum of a message that was kept."""
        text, *words = fields
        table: dict[str, Any] = json.loads(text)
        table["selected"] = tuple(table["selected"])
        table["graph"] = {int(client): tuple(near) for client, near in table["graph"].items()}
        table["keys"] = {int(client): Keys(*map(bytes.fromhex, own)) for client, own in table["keys"].items()}
        if (found := table["collected"]) is not None:
            total = tuple(word.numpy().view(dtype) for word, dtype in zip(words, found["total"], strict=True))
            about = ({int(client): said for client, said in found[key].items()} for key in ("problems", "digests"))
            table["collected"] = Collected(tuple(found["senders"]), total, *about)
        return cls(**table)


class Release(NamedTuple):
    """A private round with its noise."""

    number: int
    selected: tuple[int, ...]
    checkpoint: ServerCheckpoint
    summary: RoundSummary
    digests: dict[int, str]

    def fields(self) -> Message:
        """Return the round as a message that a store can keep."""
        summary = self.summary._asdict() | {"released": dict(self.summary.released)}
        text = json.dumps([self.number, self.selected, self.digests, summary])
        round, server, buffers, seen = self.checkpoint
        return text, round, seen, *buffers, *server

    @classmethod
    def of(cls, fields: Message, server_type: type[Any]) -> "Release":
        """Return the round of a message that was kept."""
        text, round, seen, floats, integers, *server = fields
        number, selected, digests, table = json.loads(text)
        facts: dict[str, Any] = {key: tuple(own) if isinstance(own, list) else own for key, own in table.items()}
        checkpoint = ServerCheckpoint(round, server_type(*server), Buffers(floats, integers), seen)
        return cls(
            number,
            tuple(selected),
            checkpoint,
            RoundSummary(**facts),
            {int(client): own for client, own in digests.items()},
        )
