"""A round between its requests and its commit: which of its replies are updates, and what is wrong with the others."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from logging import WARNING
from typing import NamedTuple

from flwr.app import Message
from flwr.common.logger import log

from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import Collection, Reply, Request
from fedadmm.core.round import ClientResult, RoundSummary, ServerCheckpoint
from fedadmm.flower.messages import BadReplyError, NoReplyError, read_digest, read_update, refused
from fedadmm.flower.secure_round import SecureRound, read_masked
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.wire import Wire


class Expected(NamedTuple):
    """What the replies of a round are compared with."""

    wire: Wire
    checkpoint: ServerCheckpoint  # that the requests were made of
    theta: Vector  # that was sent, which need not be the checkpoint's
    largest: float  # the norm above which an upload is refused

    def read(self, message: Message, request: Request) -> ClientResult:
        """Return the update in the reply to a request."""
        if self.wire.encoding is not None:
            return read_masked(message, self.wire.encoding, request=request)
        round, buffers = self.checkpoint.round + 1, self.checkpoint.buffers
        return read_update(
            message, self.wire, request=request, round=round, theta=self.theta, buffers=buffers, largest=self.largest
        )


@dataclass
class OpenRound:
    """A round from its requests to its commit."""

    replies: Collection  # which of them count, and who has not answered
    requests: list[tuple[Message, Request]]
    began: float
    selected: tuple[int, ...] = ()
    problems: dict[int, str] = field(default_factory=dict)  # client -> why its reply is no update
    digests: dict[int, str] = field(default_factory=dict)  # client -> that of the state which it has now
    secure: SecureRound | None = None  # where uploads are added under masks
    withheld: list[Message] = field(default_factory=list)  # replies that nobody else shall see
    # What became of it once its replies were applied; it does not count before it is committed.
    applied: tuple[ServerCheckpoint, RoundSummary] | None = None

    def sound(self, messages: Iterable[Message], expected: Expected) -> list[Message]:
        """Return the replies that are updates; the others are withheld, until they are looked at here."""
        asked, found = self._asked(), list[Message]()
        for message in messages:
            known = asked.get(message.metadata.reply_to_message_id)
            try:
                fine = known is not None and expected.read(message, known[1]).finite
            except (NoReplyError, BadReplyError):
                fine = False
            (found if fine else self.withheld).append(message)
        return found

    def updates(
        self, messages: Iterable[Message], folder: ServerFolder, expected: Expected
    ) -> list[tuple[ClientResult, Message]]:
        """Return the results of the replies that count, in rising order of their clients."""
        asked, found = self._asked(), []
        for message in [*messages, *self.withheld]:
            if message.metadata.reply_to_message_id not in asked:
                log(WARNING, "Node %d answered what it was not asked in this round", message.metadata.src_node_id)
                continue
            question, request = asked[message.metadata.reply_to_message_id]
            node, client = question.metadata.dst_node_id, request.client  # an error comes from the SuperLink
            try:
                result = expected.read(message, request)
            except NoReplyError as error:
                log(WARNING, "Client %d failed: %s", client, error)
                folder.nodes.failed(node, str(error))
                continue
            except BadReplyError as error:
                log(WARNING, "Client %d (node %d) sent a reply that is no update: %s", client, node, error)
                result, self.problems[client] = refused(client), str(error)
                folder.nodes.answered(node)
            else:
                # Of a masked upload nobody knows the norm.
                folder.nodes.sent(node, norm=result.stats.upload_norm if self.secure is None else math.nan)
                if self.secure is not None and not result.finite:
                    self.problems[client] = "it sent nothing: its upload is not finite, or out of range"
            if self.replies.counts(Reply(client, request.number)):
                first_visit = folder.store.round_of(client) is None
                if result.finite and (digest := read_digest(message)) is not None:
                    self.digests[client] = digest
                found.append((result._replace(first_visit=first_visit), message))
        return sorted(found, key=lambda pair: pair[0].client)

    def _asked(self) -> dict[str, tuple[Message, Request]]:
        """Return the requests by their ids: a reply is that of the client that was asked, whatever it says."""
        return {message.metadata.message_id: (message, request) for message, request in self.requests}
