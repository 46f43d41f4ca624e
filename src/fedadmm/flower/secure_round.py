"""The four stages of secure aggregation at the server, over Flower's messages (secure/protocol.py)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedadmm.core.delivery import Request
from fedadmm.core.round import ClientResult
from fedadmm.core.seeds import stream
from fedadmm.flower.messages import BadReplyError, NoReplyError, reading, refused
from fedadmm.flower.node_status import NodeStatus
from fedadmm.flower.wire import WrongFormatError, integer, read_words
from fedadmm.secure.encoding import Encoding
from fedadmm.secure.fixed_point import Words
from fedadmm.secure.graph import Graph, harary
from fedadmm.secure.protocol import Keys, Revealed, Terms, VoidError, check_keys, unmask, usable
from fedadmm.secure.settings import Secure
from fedadmm.secure.shamir import SHARE_BYTES
from fedadmm.secure.transport import UnmaskedMean

KEYS, SHARES, UNMASK = "query.secure_keys", "query.secure_shares", "query.secure_unmask"
LONGEST = 120.0  # seconds that a stage waits in which nobody trains
SEALED_BYTES = 12 + 2 * SHARE_BYTES + 16  # a nonce, two shares and a tag

Read = Callable[[ConfigRecord, int], Any]


NUM_STATS = 5  # a one, loss, steps, gradient evaluations, uploads within clip: see `_words` on the node


def read_masked(message: Message, encoding: Encoding, *, request: Request) -> ClientResult:
    """Return the masked update in a reply, with its words as the upload; whoever could not send is not finite."""
    with reading(message, "arrays", "config") as content:
        config = content.config_records["config"]
        for key, asked in (("client-id", request.client), ("number", request.number)):
            if (claimed := integer(config, key)) != asked:
                raise WrongFormatError(f"its {key} is {claimed}, and {asked} was asked")
        if integer(config, "sent", largest=1) == 0:
            return refused(request.client)
        vectors, numbers = encoding.words(encoding.like)
        form = (vectors, np.concatenate([numbers, np.zeros(NUM_STATS, numbers.dtype)]))
        words = read_words(content.array_records["arrays"], form)
    size = words[0].nbytes + words[1].nbytes - form[1].itemsize * NUM_STATS
    return refused(request.client)._replace(upload=words, finite=True, bytes_up=size)


def added_up(
    results: list[ClientResult], total: tuple[Words, ...] | None, encoding: Encoding
) -> tuple[list[ClientResult], UnmaskedMean]:
    """Return the results with what is known of their statistics, their sums, and the mean of the sum of their words.

    total: None if it cannot be had.
    """
    sent = [result.client for result in results if result.finite]
    if total is None:
        return results, UnmaskedMean(encoding, None, count=0)
    _, loss, *counts = encoding.numbers.numbers(total[1][-NUM_STATS:]).tolist()
    known = []
    for result in results:
        if result.finite:
            # The sums stand with the first client, but for the loss, of which each has the mean.
            steps, gradients = (round(count) for count in counts[:2]) if result.client == sent[0] else (0, 0)
            stats = result.stats._replace(steps=steps, gradient_evaluations=gradients, loss=loss / len(sent))
            stats = stats._replace(within_clip=sent.index(result.client) < round(counts[2]))
            result = result._replace(stats=stats)
        known.append(result)
    words = (total[0], total[1][:-NUM_STATS])
    return known, UnmaskedMean(encoding, words, count=len(sent))


class SecureRound:
    """One sum, from the keys to the unmasked words."""

    def __init__(
        self,
        settings: Secure,
        grid: Grid,
        status: NodeStatus,
        *,
        federation: str,
        number: int,
        round: int,
        seed: int,
        num_selected: int,
        timeout: float,
    ) -> None:
        self._grid, self._federation, self._number, self._round = grid, federation, number, round
        self._status = status
        self._timeout = min(timeout, LONGEST)
        self._generator = stream(seed, "secure neighbours", round)
        self._degree = settings.degree(num_selected)
        self.terms = Terms(f"{federation} {number}", settings.shares_needed(num_selected))
        self._nodes: dict[int, int] = {}
        self._graph: Graph = {}
        self._keys: dict[int, Keys] = {}
        self.carried: dict[int, ConfigRecord] = {}  # client -> what the request to train says of masks

    def agree(self, nodes: Mapping[int, int]) -> list[int]:
        """Let clients exchange keys and shares (stages 1 and 2), and return those who have; nobody: the round is void.

        nodes: of the clients that are asked.
        """
        self._nodes = dict(nodes)
        with self._void_is_told():
            self._exchange()
        return list(self.carried)

    def mean_of(self, results: list[ClientResult], encoding: Encoding) -> tuple[list[ClientResult], UnmaskedMean]:
        """Return masked results with what is known of their statistics, and the mean of the sum of their words."""
        total = None
        with self._void_is_told():
            total = self._unmasked({result.client: result.upload for result in results if result.finite}, encoding)
        return added_up(results, total, encoding)

    @contextmanager
    def _void_is_told(self) -> Iterator[None]:
        try:
            yield
        except VoidError as error:
            log(WARNING, "Round %d is void: %s", self._round, error)

    def _exchange(self) -> None:
        nodes = self._nodes
        keys = self._ask(KEYS, {client: {} for client in nodes}, _read_keys)
        if len(keys) <= self.terms.threshold:
            raise VoidError(f"{len(keys)} clients have sent keys, and a threshold of {self.terms.threshold} needs more")
        order = [sorted(keys)[at] for at in self._generator.permutation(len(keys))]
        self._graph = harary(order, degree=self._degree)
        offers = {
            client: {
                "threshold": self.terms.threshold,
                "neighbours": list(near),
                "keys": [b"".join(keys[other]) for other in near],
            }
            for client, near in self._graph.items()
        }
        sealed = self._ask(SHARES, offers, lambda record, client: _read_sealed(record, self._graph[client]))
        there = usable(self._graph, sealed, self.terms)
        self._keys = {client: keys[client] for client in there}
        for holder in there:
            near = [other for other in self._graph[holder] if other in self._keys]
            facts: dict[str, Any] = {"neighbours": near, "sealed": [sealed[other][holder] for other in near]}
            self.carried[holder] = self._request(facts)

    def _unmasked(self, words: Mapping[int, tuple[Words, ...]], encoding: Encoding) -> tuple[Words, ...]:
        """Return the sum of the words that these clients have masked and sent (stage 4)."""
        if not words or set(usable(self._graph, words, self.terms)) != set(words):
            raise VoidError(f"{len(words)} clients have sent, and each needs {self.terms.threshold} neighbours left")
        near = {client: [other for other in self._graph[client] if other in self._keys] for client in words}
        asked = {client: {"senders": [other for other in near[client] if other in words]} for client in words}
        revealed = self._ask(UNMASK, asked, lambda record, client: _read_revealed(record, near[client]))
        total = tuple(np.sum(part, axis=0, dtype=part[0].dtype) for part in zip(*words.values(), strict=True))
        plain = unmask(total, self.terms, self._graph, self._keys, revealed, senders=words)
        if encoding.numbers.numbers(plain[1][-NUM_STATS:])[0] != len(words):
            raise VoidError("the masks do not cancel: a client has added others than it agreed on")
        return plain

    def _request(self, facts: dict[str, Any]) -> ConfigRecord:
        return ConfigRecord({"federation": self._federation, "number": self._number, **facts})

    def _ask(self, kind: str, asked: Mapping[int, dict[str, Any]], read: Read) -> dict[int, Any]:
        """Ask clients, and return what those say whose answers are what they have to be; the others are lost."""
        messages = [
            Message(RecordDict({"secure": self._request(facts)}), self._nodes[client], kind, ttl=self._timeout)
            for client, facts in asked.items()
        ]
        replies = list(self._grid.send_and_receive(messages, timeout=self._timeout))
        clients = {message.metadata.message_id: client for message, client in zip(messages, asked, strict=True)}
        found: dict[int, Any] = {}
        for reply in replies:
            client = clients.get(reply.metadata.reply_to_message_id)
            if client is None or client in found:
                continue
            try:
                with reading(reply, "secure") as content:
                    record = content.config_records["secure"]
                    if integer(record, "number") != self._number:
                        raise WrongFormatError("it answers another request")
                    found[client] = read(record, client)
            except (BadReplyError, NoReplyError) as error:
                bad = isinstance(error, BadReplyError)
                (self._status.refused if bad else self._status.failed)(self._nodes[client], str(error))
                log(WARNING, "Client %d is left out of the sum (%s): %s", client, kind, error)
        return found


def _read_keys(record: ConfigRecord, client: int) -> Keys:
    keys = Keys(*_blobs(record, "keys", length=3, size=32))
    check_keys(keys)
    return keys


def _read_sealed(record: ConfigRecord, near: tuple[int, ...]) -> dict[int, bytes]:
    return dict(zip(near, _blobs(record, "sealed", length=len(near), size=SEALED_BYTES), strict=True))


def _read_revealed(record: ConfigRecord, near: list[int]) -> Revealed:
    told: list[dict[int, bytes]] = []
    for kind in Revealed._fields:
        about: Any = record[f"{kind}-of"]
        if not isinstance(about, list) or not set(about) <= set(near):
            raise WrongFormatError(f"{kind}-of is not a list of its neighbours")
        shares = _blobs(record, kind, length=len(about), size=SHARE_BYTES)
        told.append(dict(zip(about, shares, strict=True)))
    return Revealed(*told)


def _blobs(record: ConfigRecord, key: str, *, length: int, size: int) -> list[bytes]:
    values = record[key]
    if not isinstance(values, list) or len(values) != length:
        raise WrongFormatError(f"{key} is not a list of {length}")
    found = [value for value in values if isinstance(value, bytes) and len(value) == size]
    if len(found) < length:
        raise WrongFormatError(f"{key} has something that is not {size} bytes long")
    return found
