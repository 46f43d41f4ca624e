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
from fedadmm.flower.messages import BadReplyError, NoReplyError, reading, refused
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.unfinished import Collected, OpenSum
from fedadmm.flower.wire import WrongFormatError, integer, read_words
from fedadmm.secure.encoding import Encoding
from fedadmm.secure.fixed_point import Words
from fedadmm.secure.graph import harary
from fedadmm.secure.protocol import Keys, Revealed, Terms, VoidError, check_keys, unmask, usable
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
    return _sent(request.client, words)


def results_of(collected: Collected) -> list[ClientResult]:
    """Return what `read_masked` has found, once it is written down: the words are known as a sum alone."""
    sent = [_sent(client, collected.total)._replace(upload=()) for client in collected.senders]
    return sorted([*sent, *map(refused, collected.problems)], key=lambda result: result.client)


def _sent(client: int, words: tuple[Words, ...]) -> ClientResult:
    size = words[0].nbytes + words[1].nbytes - words[1].itemsize * NUM_STATS
    return refused(client)._replace(upload=words, finite=True, bytes_up=size)


def added_up(
    results: list[ClientResult], total: tuple[Words, ...] | None, encoding: Encoding
) -> tuple[list[ClientResult], UnmaskedMean]:
    """Return the results with what is known of their statistics, their sums, and the mean of the sum of their words.

    total: None if it cannot be had.
    """
    sent = [result.client for result in results if result.finite]
    if total is None:
        return results, UnmaskedMean(encoding, None, count=0)
    _, loss, *counts = encoding.statistics.numbers(total[1][-NUM_STATS:]).tolist()
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
    """One sum, from the keys to the unmasked words; how far it has come is written to the server's folder."""

    def __init__(self, sum: OpenSum, grid: Grid, folder: ServerFolder, *, timeout: float) -> None:
        self.sum, self._grid, self._folder, self._timeout = sum, grid, folder, min(timeout, LONGEST)
        self._terms = Terms(f"{folder.federation} {sum.number}", sum.threshold)
        self._nodes: Mapping[int, int] = {}
        self.carried: dict[int, ConfigRecord] = {}  # client -> what the request to train says of masks

    def agree(self, nodes: Mapping[int, int], *, degree: int, generator: np.random.Generator) -> list[int]:
        """Let clients exchange keys and shares (stages 1 and 2), and return those who have; nobody: the round is void.

        nodes: of the clients that are asked.
        """
        self._nodes = nodes
        with self._void_is_told():
            self._exchange(degree, generator)
        return list(self.carried)

    def resume(self, nodes: Mapping[int, int]) -> None:
        """Go on with a sum that was written down, with these nodes of its clients."""
        self._nodes = nodes

    def mean_of(
        self, results: list[ClientResult], encoding: Encoding, *, problems: dict[int, str], digests: dict[int, str]
    ) -> tuple[list[ClientResult], UnmaskedMean]:
        """Return masked results with what is known of their statistics, and the mean of the sum of their words."""
        total = None
        with self._void_is_told():
            collected = self.sum.collected
            if collected is None:
                words = {result.client: result.upload for result in results if result.finite}
                collected = Collected(*self._added(words), problems, digests)
                self._keep(self.sum._replace(collected=collected))  # it is the sum of these clients from here on
            total = self._unmasked(collected, encoding)
        return added_up(results, total, encoding)

    @contextmanager
    def _void_is_told(self) -> Iterator[None]:
        try:
            yield
        except VoidError as error:
            log(WARNING, "Round %d is void: %s", self.sum.round, error)

    def _exchange(self, degree: int, generator: np.random.Generator) -> None:
        threshold = self.sum.threshold
        keys = self._ask(KEYS, {client: {} for client in self._nodes}, _read_keys)
        if len(keys) <= threshold:
            raise VoidError(f"{len(keys)} clients have sent keys, and a threshold of {threshold} needs more")
        order = [sorted(keys)[at] for at in generator.permutation(len(keys))]
        graph = harary(order, degree=degree)
        offers = {
            client: {
                "threshold": threshold,
                "neighbours": list(near),
                "keys": [b"".join(keys[other]) for other in near],
            }
            for client, near in graph.items()
        }
        sealed = self._ask(SHARES, offers, lambda record, client: _read_sealed(record, graph[client]))
        there = usable(graph, sealed, self._terms)
        # Before anybody is asked to mask an update of this round.
        self._keep(self.sum._replace(graph=graph, keys={client: keys[client] for client in there}))
        for holder in there:
            near = self._near(holder)
            facts: dict[str, Any] = {"neighbours": near, "sealed": [sealed[other][holder] for other in near]}
            self.carried[holder] = self._request(facts)

    def _added(self, words: Mapping[int, tuple[Words, ...]]) -> tuple[tuple[int, ...], tuple[Words, ...]]:
        """Return who has sent words, and the sum of these, which is still masked."""
        if not words or set(usable(self.sum.graph, words, self._terms)) != set(words):
            raise VoidError(f"{len(words)} clients have sent, and each needs {self.sum.threshold} neighbours left")
        total = tuple(np.sum(part, axis=0, dtype=part[0].dtype) for part in zip(*words.values(), strict=True))
        return tuple(sorted(words)), total

    def _unmasked(self, collected: Collected, encoding: Encoding) -> tuple[Words, ...]:
        """Return the sum of the words that clients have masked and sent (stage 4)."""
        senders, asked = collected.senders, [client for client in collected.senders if client in self._nodes]
        near = {client: self._near(client) for client in asked}
        facts = {client: {"senders": [other for other in near[client] if other in senders]} for client in asked}
        revealed = self._ask(UNMASK, facts, lambda record, client: _read_revealed(record, near[client]))
        plain = unmask(collected.total, self._terms, self.sum.graph, self.sum.keys, revealed, senders=senders)
        if encoding.statistics.numbers(plain[1][-NUM_STATS:])[0] != len(senders):
            raise VoidError("the masks do not cancel: a client has added others than it agreed on")
        return plain

    def _keep(self, sum: OpenSum) -> None:
        self.sum = sum
        self._folder.keep(sum)

    def _near(self, client: int) -> list[int]:
        return [other for other in self.sum.graph[client] if other in self.sum.keys]

    def _request(self, facts: dict[str, Any]) -> ConfigRecord:
        about: dict[str, Any] = {
            "federation": self._folder.federation,
            "number": self.sum.number,
            "round": self.sum.round,
        }
        return ConfigRecord({**about, **facts})

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
                    if integer(record, "number") != self.sum.number:
                        raise WrongFormatError("it answers another request")
                    found[client] = read(record, client)
            except (BadReplyError, NoReplyError) as error:
                bad = isinstance(error, BadReplyError)
                (self._folder.nodes.refused if bad else self._folder.nodes.failed)(self._nodes[client], str(error))
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
