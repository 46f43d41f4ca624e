"""Which node is which client: asked of every node once, as Flower draws the ids of nodes."""

import time
from itertools import zip_longest
from logging import INFO, WARNING

from flwr.app import Message, MessageType
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedadmm.flower.messages import BadReplyError, NoReplyError, pack_question, read_description
from fedadmm.flower.settings import FederationSettings

POLL = 1.0  # seconds between two looks at who is there


class ClientNodes:
    """The nodes that are known, each with its client."""

    def __init__(self, settings: FederationSettings, *, federation: str, model: list[str]) -> None:
        self._federation, self._model = federation, model
        self._num_clients, self._timeout = settings.num_clients, settings.round_timeout
        self._clients: dict[int, int] = {}  # node -> client
        self._left_out: set[int] = set()

    def connected(self, grid: Grid, *, at_least: int) -> dict[int, int]:
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

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        if nodes:
            messages = [
                Message(pack_question(self._federation), node, MessageType.QUERY, ttl=self._timeout) for node in nodes
            ]
            replies = grid.send_and_receive(messages, timeout=self._timeout)
            for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
                self._note(reply)

    def _note(self, reply: Message) -> None:
        node = reply.metadata.src_node_id
        try:
            client, model = read_description(reply)
        except (BadReplyError, NoReplyError) as error:
            log(WARNING, "Node %d is not asked: %s", node, error)
            return
        problem = self._problem(client, model)
        if problem is None:
            self._clients[node] = client
            log(INFO, "Node %d is client %d", node, client)
        else:
            self._left_out.add(node)
            log(WARNING, "Node %d is left out: %s", node, problem)

    def _problem(self, client: int, model: list[str]) -> str | None:
        if not 0 <= client < self._num_clients:
            return f"its client-id is {client}, and num-clients is {self._num_clients}; raise it, or correct the id"
        if client in self._clients.values():
            return f"another node is client {client}; give each node a client-id of its own"
        for theirs, ours in zip_longest(model, self._model, fillvalue="nothing"):
            if theirs != ours:
                return f"client {client} has another model: {theirs} where the server has {ours}; install the same app"
        return None
