"""The four stages of secure aggregation on a node (secure/protocol.py), which is made anew for every message.

What a node has to remember from one stage to the next is on its disk before it answers: a node that is restarted goes
on, and so does a server that is restarted. Whatever the server asks,

    a sum       has one draw of secrets, one set of shares, one update, and one set of senders for whom masks are taken
                off; the same question about these gets the same answer, another one gets none. When secrets for
                another sum are drawn, those of the last are gone
    an update   is what a client computes for a round; once it is masked, the client masks nothing for that round again,
                nor for one before it: it may be in a sum that was unmasked, and two sums would tell their difference
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedadmm.core.errors import InputError
from fedadmm.core.files import private_files, write_whole
from fedadmm.core.round import ClientResult
from fedadmm.flower.settings import FederationSettings, client_of
from fedadmm.flower.wire import integer, packed_words
from fedadmm.secure.encoding import Encoding
from fedadmm.secure.fixed_point import Words
from fedadmm.secure.protocol import Keys, Secrets, Terms, draw_secrets, masked, reveal, seal_shares
from fedadmm.state.node import REMEDY

KEPT = "secure.json"  # in the client's folder


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
    """One node in one sum; `folder` is its client's, `encoding` that of uploads."""

    def __init__(self, folder: Path, content: RecordDict, *, client: int, encoding: Encoding | None = None) -> None:
        self._folder, self._client, self._encoding = folder, client, encoding
        asked = content.config_records.get("secure")
        if asked is None:
            raise InputError("the server asks without [secure], and this node has it; use the same run configuration")
        self._asked, self._number = asked, integer(asked, "number", least=1)
        self._round = integer(asked, "round", least=1)
        self._kept: dict[str, Any] = {}

    @classmethod
    def of(cls, message: Message, context: Context) -> "SecureNode":
        """Return the node that a message reaches, in a stage in which it does not train."""
        folder = FederationSettings.from_run_config(context.run_config).client_folder(context)
        return cls(folder, message.content, client=client_of(context))

    def keys(self) -> RecordDict:
        """Stage 1: draw secrets, and tell the public keys."""
        with self._remembering():
            if self._number <= self._kept.get("number", 0):
                raise InputError(
                    f"client {self._client} has drawn secrets for sum {self._kept['number']}, and is asked for sum "
                    f"{self._number}; the server goes on with a later sum"
                )
            if self._round <= (known := self._kept.get("masked", 0)):
                raise InputError(
                    f"client {self._client} has sent its update of round {known} into a sum, and sends none of round "
                    f"{self._round} into another; the server goes on with a later round"
                )
            own = draw_secrets(self._client)
            about = {"federation": str(self._asked["federation"]), "number": self._number, "round": self._round}
            self._keep(about | {"masked": known, "stage": 1, "secrets": _hex(own[1:])})
        return self._reply({"keys": list(own.keys)})

    def shares(self) -> RecordDict:
        """Stage 2: split the seeds among the neighbours."""
        threshold = integer(self._asked, "threshold", least=1)
        joined = _pairs(self._asked, "neighbours", "keys")
        with self._remembering():
            own = self._secrets(stage=1)
            keys = {client: Keys(*_thirds(each)) for client, each in joined.items()}
            sealed = seal_shares(own, self._terms(threshold), keys)
            about = {"neighbours": list(joined), "keys": _hex(joined.values()), "threshold": threshold}
            self._keep(self._kept | about | {"stage": 2})
        return self._reply({"sealed": list(sealed.values())})

    def update(self, result: ClientResult, *, round: int) -> tuple[ClientResult, ArrayRecord]:
        """Stage 3: return the update of a round, and its words under their masks.

        One that has none is not finite, and not sent.
        """
        self._round = round
        arrays = packed_words(self._masked(self._words(result))) if result.finite else ArrayRecord()
        return result, arrays

    def _words(self, result: ClientResult) -> tuple[Words, ...]:
        """Return the words of an update and of its statistics, which are added up too."""
        assert self._encoding is not None
        vectors, numbers = self._encoding.words(result.upload)
        stats = result.stats
        # The first is a one: if the sum of these is not the number of clients, masks did not cancel.
        added = [1, stats.loss, stats.steps, stats.gradient_evaluations, stats.within_clip or 0]
        return vectors, np.concatenate([numbers, self._encoding.statistic_words(added)])

    def _masked(self, words: tuple[Words, ...]) -> tuple[Words, ...]:
        sealed = _pairs(self._asked, "neighbours", "sealed")
        with self._remembering():
            own = self._secrets(stage=2)
            if self._kept["round"] != self._round:
                raise InputError(
                    f"client {self._client} drew secrets for round {self._kept['round']}, and is asked for round "
                    f"{self._round}; the server goes on with a later sum"
                )
            keys = {client: keys for client, keys in self._neighbours().items() if client in sealed}
            hidden = masked(own, self._terms(self._kept["threshold"]), keys, words)
            about = {"stage": 3, "masked": self._round, "left": list(keys)}
            self._keep(self._kept | about | {"sealed": _hex(sealed[client] for client in keys)})
        return hidden

    def unmask(self) -> RecordDict:
        """Stage 4: reveal one share of each neighbour, and forget the rest."""
        asked: Any = self._asked["senders"]
        senders = sorted(asked)
        with self._remembering():
            if self._kept.get("number") != self._number or self._kept.get("stage") != 4:
                self._reveal(senders)
            if self._kept["senders"] != senders:
                raise InputError(
                    f"client {self._client} has taken masks off sum {self._number} for other senders; it does so once"
                )
            facts: dict[str, Any] = {}
            for kind, shares in self._kept["revealed"].items():
                facts |= {f"{kind}-of": list(map(int, shares)), kind: list(map(bytes.fromhex, shares.values()))}
        return self._reply(facts)

    def _reveal(self, senders: list[int]) -> None:
        own, keys = self._secrets(stage=3), self._neighbours()
        sealed = dict(zip(self._kept["left"], map(bytes.fromhex, self._kept["sealed"]), strict=True))
        left = {client: keys[client] for client in sealed}
        told = reveal(own, self._terms(self._kept["threshold"]), left, sealed, senders=senders)
        known = {key: self._kept[key] for key in ("federation", "number", "round", "masked")}
        shares = {kind: {client: share.hex() for client, share in own.items()} for kind, own in told._asdict().items()}
        self._keep(known | {"stage": 4, "senders": senders, "revealed": shares})

    def _secrets(self, *, stage: int) -> Secrets:
        """Return the secrets of this sum; refuse what comes twice, or out of order."""
        if self._kept.get("number") != self._number or self._kept.get("stage") != stage:
            raise InputError(
                f"client {self._client} is not at stage {stage} of sum {self._number}: it was asked twice; the "
                "server goes on with a later sum"
            )
        return Secrets(self._client, *map(bytes.fromhex, self._kept["secrets"]))

    def _terms(self, threshold: int) -> Terms:
        return Terms(f"{self._kept['federation']} {self._number}", threshold)

    def _neighbours(self) -> dict[int, Keys]:
        found = zip(self._kept["neighbours"], map(bytes.fromhex, self._kept["keys"]), strict=True)
        return {client: Keys(*_thirds(joined)) for client, joined in found}

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        """Read what was kept, and let no other process of this node do so meanwhile."""
        path, federation = self._folder / KEPT, self._asked["federation"]
        with private_files():
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._kept = json.loads(path.read_bytes()) if path.exists() else {}
                if self._kept.get("federation", federation) != federation:
                    raise InputError(f"{path} is of another federation, {self._kept['federation']}; {REMEDY}")
                yield

    def _keep(self, facts: dict[str, Any]) -> None:
        self._kept = facts
        write_whole(self._folder / KEPT, json.dumps(facts))
        with _opened(self._folder) as folder:  # what was answered must not be forgotten by a loss of power
            os.fsync(folder)

    def _reply(self, facts: dict[str, Any]) -> RecordDict:
        return RecordDict({"secure": ConfigRecord({"number": self._number, **facts})})


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _hex(values: Iterable[bytes]) -> list[str]:
    return [value.hex() for value in values]


def _thirds(joined: bytes) -> tuple[bytes, bytes, bytes]:
    return joined[:32], joined[32:64], joined[64:]


def _pairs(record: ConfigRecord, ids: str, values: str) -> dict[int, bytes]:
    clients: Any = record[ids]
    found: Any = record[values]
    return dict(zip(clients, found, strict=True))
