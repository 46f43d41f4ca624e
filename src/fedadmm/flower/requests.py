"""The requests of a round, as messages to the nodes of the clients that are connected."""

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, MessageType

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.delivery import NONE, Request
from fedadmm.core.round import Assignment, ServerCheckpoint
from fedadmm.flower.messages import NodeRequest, pack_request
from fedadmm.flower.open_round import OpenRound
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.wire import Wire


@dataclass(frozen=True)
class Requests:
    """Makes them of what clients are asked to do."""

    algorithm: AnyAlgorithm
    wire: Wire
    folder: ServerFolder
    timeout: float  # seconds

    def messages(
        self,
        kind: str,
        assignments: list[Assignment],
        connected: Mapping[int, int],
        config: ConfigRecord,
        *,
        round: OpenRound,
        checkpoint: ServerCheckpoint,
    ) -> list[tuple[Message, Request]]:
        """Return the requests to the clients that are connected; `connected` has their nodes."""
        messages = []
        for assignment in assignments:
            if assignment.client in connected:
                request = self._request(kind, assignment, number=round.replies.number, checkpoint=checkpoint)
                content = pack_request(request, self.wire, config=config)
                if round.secure is not None and kind == MessageType.TRAIN:
                    content["secure"] = round.secure.carried[assignment.client]
                node, group = connected[assignment.client], str(assignment.round)
                messages.append((Message(content, node, kind, ttl=self.timeout, group_id=group), request.delivery))
        return messages

    def _request(self, kind: str, assignment: Assignment, *, number: int, checkpoint: ServerCheckpoint) -> NodeRequest:
        applied = self.folder.applied(assignment.client)
        needs_initial = kind == MessageType.TRAIN and applied == NONE and self.algorithm.newcomer == "initial"
        download = self.algorithm.download(checkpoint.server)
        if kind == MessageType.EVALUATE:
            download = download._replace(theta=self.algorithm.model(checkpoint.server))
        delivery = Request(assignment.client, number, applied, self.folder.rollback)
        initial = self.folder.store.initial() if needs_initial else None
        return NodeRequest(assignment, delivery, self.folder.federation, download, checkpoint.buffers, initial)
