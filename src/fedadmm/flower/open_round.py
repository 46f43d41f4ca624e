"""A round between its requests and its commit: which of its replies are updates, and what is wrong with the others."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import NamedTuple

import numpy as np
from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import Collection, Reply, Request
from fedadmm.core.round import ClientResult, RoundSummary, ServerCheckpoint
from fedadmm.flower.client_nodes import ClientNodes
from fedadmm.flower.messages import BadReplyError, NoReplyError, read_digest, read_update, refused
from fedadmm.flower.secure_round import SecureRound, read_masked, results_of
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.unfinished import OpenSum
from fedadmm.flower.wire import Wire
from fedadmm.secure.encoding import Encoding
from fedadmm.secure.settings import Secure
from fedadmm.secure.transport import UnmaskedMean


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
    left: OpenSum | None = None  # what a killed server has written down of it
    withheld: list[Message] = field(default_factory=list)  # replies that nobody else shall see
    # What became of it once its replies were applied; it does not count before it is committed.
    applied: tuple[ServerCheckpoint, RoundSummary] | None = None

    @classmethod
    def left_by_another(cls, folder: ServerFolder, *, began: float) -> "OpenRound | None":
        """Return the round that a killed server has written down and not committed, None if there is none."""
        release, sum = folder.release(), folder.open_sum()
        if release is not None:
            log(WARNING, "Round %d has its noise, and is committed now", release.checkpoint.round)
            found = cls(Collection(release.number, clients=()), [], began, release.selected, digests=release.digests)
            found.applied = (release.checkpoint, release.summary)
            return found
        return None if sum is None else cls(Collection(sum.number, clients=()), [], began, sum.selected, left=sum)

    def go_on(self, grid: Grid, nodes: ClientNodes, folder: ServerFolder, *, timeout: float) -> None:
        """Wait for the clients of a sum that was written down."""
        if self.left is not None:
            senders = () if self.left.collected is None else self.left.collected.senders
            fate = "its sum is unmasked now" if senders else "updates may be masked, and it does not count"
            log(WARNING, "Round %d was begun by a server that has ended: %s", self.left.round, fate)
            self.secure = SecureRound(self.left, grid, folder, timeout=timeout)
            if senders:
                self.secure.resume(nodes.enough(grid, wanted=senders))

    def agreed(
        self,
        settings: Secure,
        connected: dict[int, int],
        grid: Grid,
        folder: ServerFolder,
        *,
        round: int,
        timeout: float,
        generator: np.random.Generator,
    ) -> dict[int, int]:
        """Let the connected clients of the round agree on masks, and return those who have with their nodes."""
        num_asked = len(self.selected)
        sum = OpenSum(self.replies.number, round, self.selected, settings.shares_needed(num_asked), {}, {})
        self.secure = SecureRound(sum, grid, folder, timeout=timeout)
        nodes = {client: connected[client] for client in self.selected if client in connected}
        agreed = self.secure.agree(nodes, degree=settings.degree(num_asked), generator=generator)
        return {client: connected[client] for client in agreed}

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
                log(WARNING, "Client %d (node %d) sent a reply that is not an update: %s", client, node, error)
                result, self.problems[client] = refused(client), str(error)
                folder.nodes.answered(node)
            else:
                # Of a masked upload nobody knows the norm.
                folder.nodes.sent(node, norm=result.stats.upload_norm if self.secure is None else math.nan)
                if self.secure is not None and not result.finite:
                    self.problems[client] = "it sent nothing: its upload is not finite, or out of range"
            if self.replies.counts(Reply(client, request.number)):
                if result.finite and (digest := read_digest(message)) is not None:
                    self.digests[client] = digest
                found.append((_with_visit(result, folder), message))
        return sorted(found, key=lambda pair: pair[0].client)

    def _asked(self) -> dict[str, tuple[Message, Request]]:
        """Return the requests by their ids: a reply is that of the client that was asked, whatever it says."""
        return {message.metadata.message_id: (message, request) for message, request in self.requests}

    def unmasked(
        self, results: list[ClientResult], encoding: Encoding, folder: ServerFolder
    ) -> tuple[list[ClientResult], UnmaskedMean]:
        """Return the results of masked updates, and the mean of their sum; of a sum that was written down, its own."""
        assert self.secure is not None
        if (known := self.secure.sum.collected) is not None:
            results = [_with_visit(result, folder) for result in results_of(known)]
            self.problems, self.digests = known.problems, known.digests
        return self.secure.mean_of(results, encoding, problems=self.problems, digests=self.digests)

    def tell(self, folder: ServerFolder, *, checkpoint: ServerCheckpoint, summary: RoundSummary, allowed: str) -> None:
        """Log what became of the round; allowed: the length of an upload, and by what."""
        nodes = {request.client: message.metadata.dst_node_id for message, request in self.requests}
        for client in summary.refused:
            is_long = client in summary.oversized
            other = f"its upload is longer than {allowed}" if is_long else "its upload cannot be used"
            problem = self.problems.get(client, other)
            if client in nodes:  # another server has asked it, if this one goes on with its sum
                folder.nodes.refused(nodes[client], problem)
            log(WARNING, "Client %d is refused in round %d: %s", client, checkpoint.round, problem)
        log(INFO, "Round %d applies %d of %d", checkpoint.round, len(summary.clients), len(self.selected))


def _with_visit(result: ClientResult, folder: ServerFolder) -> ClientResult:
    return result._replace(first_visit=folder.store.round_of(result.client) is None)
