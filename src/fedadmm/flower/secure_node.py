"""The four stages of secure aggregation on a node (secure/protocol.py), which is made anew for every message.

What a node has to remember from one stage to the next is in the state of Flower's context: in the memory of its
SuperNode, until the round is over. A node that is restarted meanwhile has lost it, and counts as a lost client.
Nothing is done twice for one number: two uploads under the same masks would tell their difference.
"""

from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedadmm.core.errors import InputError
from fedadmm.core.round import ClientResult
from fedadmm.flower.settings import client_of
from fedadmm.flower.wire import integer, packed_words
from fedadmm.secure.encoding import Encoding
from fedadmm.secure.fixed_point import OutOfRangeError, Words
from fedadmm.secure.protocol import Keys, Secrets, Terms, draw_secrets, masked, reveal, seal_shares

KEPT = "fedadmm-secure"


def pack_masked(result: ClientResult, arrays: ArrayRecord, *, request: int, digest: str) -> RecordDict:
    """Return a masked update as records: nothing of it is told but the words, and whether it could be sent.

    digest: of the state that the client has then, under a key of its own: nobody can test a guess by it.
    """
    facts: dict[str, Any] = {
        "client-id": result.client,
        "number": request,
        "sent": int(result.finite),
        "digest": digest,
    }
    return RecordDict({"arrays": arrays, "config": ConfigRecord(facts)})


class SecureNode:
    """One node in one sum; `state` is that of Flower's context, `encoding` that of uploads."""

    def __init__(
        self, state: RecordDict, content: RecordDict, *, client: int, encoding: Encoding | None = None
    ) -> None:
        self._state, self._client, self._encoding = state, client, encoding
        asked = content.config_records.get("secure")
        if asked is None:
            raise InputError("the server asks without [secure], and this node has it; use the same run configuration")
        self._asked, self._number = asked, integer(asked, "number", least=1)
        kept = state.config_records.get(KEPT)
        self._kept: dict[str, Any] = {} if kept is None else dict(kept)

    @classmethod
    def of(cls, message: Message, context: Context) -> "SecureNode":
        """Return the node that a message reaches, in a stage in which it does not train."""
        return cls(context.state, message.content, client=client_of(context))

    def keys(self) -> RecordDict:
        """Stage 1: draw secrets, and tell the public keys."""
        if self._number <= self._kept.get("number", 0):
            raise InputError(f"client {self._client} has drawn secrets for sum {self._kept['number']}, not before it")
        own = draw_secrets(self._client)
        self._keep({"number": self._number, "stage": 1, "secrets": list(own[1:])})
        return self._reply({"keys": list(own.keys)})

    def shares(self) -> RecordDict:
        """Stage 2: split the seeds among the neighbours."""
        own = self._secrets(stage=1)
        threshold = integer(self._asked, "threshold", least=1)
        keys = {client: Keys(*_thirds(joined)) for client, joined in _pairs(self._asked, "neighbours", "keys").items()}
        sealed = seal_shares(own, self._terms(threshold), keys)
        about: dict[str, Any] = {"neighbours": list(keys), "keys": [b"".join(each) for each in keys.values()]}
        self._keep(self._kept | about | {"stage": 2, "threshold": threshold})
        return self._reply({"sealed": list(sealed.values())})

    def update(self, result: ClientResult) -> tuple[ClientResult, ArrayRecord]:
        """Stage 3: return an update, and its words under their masks; one that has none is not finite, and not sent."""
        words = self._words(result) if result.finite else None
        arrays = ArrayRecord() if words is None else packed_words(self._masked(words))
        return result._replace(finite=words is not None), arrays

    def _words(self, result: ClientResult) -> tuple[Words, ...] | None:
        """Return the words of an update and of its statistics, which are added up too; None: they are out of range."""
        assert self._encoding is not None
        vectors, numbers = self._encoding.words(result.upload)
        stats, encoding = result.stats, self._encoding.numbers
        # The first is a one: if the sum of these is not the number of clients, masks did not cancel.
        added = [1, stats.loss, stats.steps, stats.gradient_evaluations, stats.within_clip or 0]
        try:
            return vectors, np.concatenate([numbers, encoding.words(encoding.rounded(added))])
        except OutOfRangeError:
            return None

    def _masked(self, words: tuple[Words, ...]) -> tuple[Words, ...]:
        own, sealed = self._secrets(stage=2), _pairs(self._asked, "neighbours", "sealed")
        keys = {client: keys for client, keys in self._neighbours().items() if client in sealed}
        hidden = masked(own, self._terms(self._kept["threshold"]), keys, words)
        self._keep(self._kept | {"stage": 3, "left": list(keys), "sealed": [sealed[client] for client in keys]})
        return hidden

    def unmask(self) -> RecordDict:
        """Stage 4: reveal one share of each neighbour, and forget the rest."""
        own, keys = self._secrets(stage=3), self._neighbours()
        sealed = dict(zip(self._kept["left"], self._kept["sealed"], strict=True))
        left = {client: keys[client] for client in sealed}
        senders: Any = self._asked["senders"]
        told = reveal(own, self._terms(self._kept["threshold"]), left, sealed, senders=senders)
        self._keep({"number": self._number, "stage": 4})
        facts: dict[str, Any] = {}
        for kind, shares in told._asdict().items():
            facts |= {f"{kind}-of": list(shares), kind: list(shares.values())}
        return self._reply(facts)

    def _secrets(self, *, stage: int) -> Secrets:
        """Return the secrets of this sum; refuse what comes twice, out of order, or after a restart."""
        if self._kept.get("number") != self._number or self._kept.get("stage") != stage:
            raise InputError(
                f"client {self._client} is not at stage {stage} of sum {self._number}: it was restarted, or asked twice"
            )
        return Secrets(self._client, *self._kept["secrets"])

    def _terms(self, threshold: int) -> Terms:
        return Terms(f"{self._asked['federation']!s} {self._number}", threshold)

    def _neighbours(self) -> dict[int, Keys]:
        found = zip(self._kept["neighbours"], self._kept["keys"], strict=True)
        return {client: Keys(*_thirds(joined)) for client, joined in found}

    def _keep(self, facts: dict[str, Any]) -> None:
        self._kept = facts
        self._state[KEPT] = ConfigRecord(facts)

    def _reply(self, facts: dict[str, Any]) -> RecordDict:
        return RecordDict({"secure": ConfigRecord({"number": self._number, **facts})})


def _thirds(joined: bytes) -> tuple[bytes, bytes, bytes]:
    return joined[:32], joined[32:64], joined[64:]


def _pairs(record: ConfigRecord, ids: str, values: str) -> dict[int, bytes]:
    clients: Any = record[ids]
    found: Any = record[values]
    return dict(zip(clients, found, strict=True))
