"""Which node is which client: asked of every node once, as Flower draws the ids of nodes."""

import time
from collections.abc import Iterable
from logging import INFO, WARNING

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid

POLL = 1.0  # seconds between two looks at who is there


class ClientNodes:
    """The nodes that are known, each with its client."""

    def __init__(self, *, federation: str, description: list[str], num_clients: int, timeout: float) -> None:
        self._federation, self._description = federation, description
        self._num_clients, self._timeout = num_clients, timeout
        self._clients: dict[int, int] = {}  # node -> client
        self._left_out: set[int] = set()

    def present(self, grid: Grid, *, at_least: int) -> dict[int, int]:
        """Return the node of each client that is connected, once there are enough of them."""
        told = None
        while True:
            online = set(grid.get_node_ids())
            self._ask(grid, sorted(online - self._clients.keys() - self._left_out))
            found = {self._clients[node]: node for node in online if node in self._clients}
            if len(found) >= at_least:
                return found
            if told != len(found):
                told = len(found)
                log(INFO, "Waiting for nodes: %d of %d (min-available-nodes) are there", told, at_least)
            time.sleep(POLL)

    def asked_of(self, requests: Iterable[Message], reply: Message) -> str:
        """Return the client of a failed request: an error that the SuperLink made does not name the node."""
        for request in requests:
            if request.metadata.message_id == reply.metadata.reply_to_message_id:
                return str(self._clients.get(request.metadata.dst_node_id))
        return "unknown"

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        if not nodes:
            return
        question = ConfigRecord({"federation": self._federation})
        messages = [
            Message(RecordDict({"config": question}), node, MessageType.QUERY, ttl=self._timeout) for node in nodes
        ]
        for reply in sorted(
            grid.send_and_receive(messages, timeout=self._timeout), key=lambda reply: reply.metadata.src_node_id
        ):
            self._note(reply)

    def _note(self, reply: Message) -> None:
        node = reply.metadata.src_node_id
        if reply.has_error():
            log(WARNING, "Node %d is not asked: %s", node, reason(reply))
            return
        answer = reply.content.config_records["config"]
        client, description = int(answer["client-id"]), [str(line) for line in answer["model"]]  # type: ignore[arg-type, union-attr]
        problem = self._problem(client, description)
        if problem is None:
            self._clients[node] = client
            log(INFO, "Node %d is client %d", node, client)
        else:
            self._left_out.add(node)
            log(WARNING, "Node %d is left out: %s", node, problem)

    def _problem(self, client: int, description: list[str]) -> str | None:
        if client >= self._num_clients:
            return f"its client-id is {client}, and num-clients is {self._num_clients}; raise it, or correct the id"
        if client in self._clients.values():
            return f"another node is client {client}; give each node a client-id of its own"
        if description != self._description:
            theirs, ours = next(pair for pair in _pairs(description, self._description) if pair[0] != pair[1])
            return f"client {client} has another model: {theirs} where the server has {ours}; install the same app"
        return None


def reason(reply: Message) -> str:
    """Return why a reply is an error: the last line of what a client raised is the sentence."""
    if reply.error.code == ErrorCode.MESSAGE_UNAVAILABLE:
        return "it did not answer within round-timeout"
    lines = (reply.error.reason or "no reason was given").strip().splitlines()
    return f"{lines[-1]} (code {reply.error.code})"


def _pairs(left: list[str], right: list[str]) -> Iterable[tuple[str, str]]:
    length = max(len(left), len(right))
    return zip(left + ["nothing"] * (length - len(left)), right + ["nothing"] * (length - len(right)), strict=True)
