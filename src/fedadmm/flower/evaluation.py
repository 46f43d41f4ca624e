"""The model of a round as the nodes score it, on their own examples."""

from collections.abc import Iterable, Mapping
from logging import WARNING

from flwr.app import ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log

from fedadmm.core.participation import Devices, Uniform
from fedadmm.core.round import ServerCheckpoint
from fedadmm.core.seeds import stream
from fedadmm.engine.planner import Planner
from fedadmm.flower.messages import BadReplyError, NoReplyError, mean_scores, read_scores
from fedadmm.flower.open_round import OpenRound
from fedadmm.flower.requests import Requests
from fedadmm.flower.settings import FederationSettings


class NodeEvaluation:
    """Asks some clients to evaluate the model, and averages what they answer."""

    def __init__(self, settings: FederationSettings, planner: Planner, requests: Requests) -> None:
        self._settings, self._planner, self._requests = settings, planner, requests
        self._asked: list[Message] = []

    def messages(
        self, connected: Mapping[int, int], config: ConfigRecord, *, round: OpenRound, checkpoint: ServerCheckpoint
    ) -> list[Message]:
        """Return the requests to evaluate the model of a checkpoint, to the clients that our stream selects."""
        number, seed = checkpoint.round, self._settings.seed
        clients = Uniform(self._settings.fraction_evaluate).select(
            number, devices=Devices(self._settings.num_clients), generator=stream(seed, "evaluation", number)
        )
        assignments = [self._planner.assignment(number, int(client)) for client in clients]
        found = self._requests.messages(
            MessageType.EVALUATE, assignments, connected, config, round=round, checkpoint=checkpoint
        )
        self._asked = [message for message, _ in found]
        return self._asked

    def scores(self, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics over the clients' examples, of theta and of the clients' own models."""
        scores, nodes = [], self._requests.folder.nodes
        # A reply is that of the node that was asked by the message it answers, whatever it says.
        found = {reply.metadata.reply_to_message_id: reply for reply in replies}
        for question in self._asked:
            message, node = found.get(question.metadata.message_id), question.metadata.dst_node_id
            if message is None:
                continue
            try:
                scores.append(read_scores(message))
            except (BadReplyError, NoReplyError) as error:
                if isinstance(error, BadReplyError):
                    nodes.refused(node, str(error))
                log(WARNING, "Node %d was not evaluated: %s", node, error)
        nodes.write()  # the last evaluation has no round after it
        return MetricRecord(dict(mean_scores(scores))) if scores else None
