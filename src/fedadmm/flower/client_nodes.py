"""Which node is which client: asked of every node once, as Flower draws the ids of nodes."""

import secrets
import time
from itertools import zip_longest
from logging import INFO, WARNING

from flwr.app import Message, MessageType
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedadmm.flower.messages import BadReplyError, Description, NoReplyError, pack_question, read_description
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.settings import FederationSettings

POLL = 1.0  # seconds between two looks at who is there


class ClientNodes:
    """The nodes that are known, each with its client."""

    def __init__(self, settings: FederationSettings, *, folder: ServerFolder, model: list[str]) -> None:
        self._folder, self._model = folder, model
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
            question, federation = secrets.token_hex(16), self._folder.federation
            messages = [
                Message(pack_question(federation, question), node, MessageType.QUERY, ttl=self._timeout)
                for node in nodes
            ]
            replies = grid.send_and_receive(messages, timeout=self._timeout)
            for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
                self._note(reply, question)

    def _note(self, reply: Message, question: str) -> None:
        node = reply.metadata.src_node_id
        try:
            told = read_description(reply, federation=self._folder.federation, question=question)
        except (BadReplyError, NoReplyError) as error:
            log(WARNING, "Node %d is not asked: %s", node, error)
            return
        problem = self._problem(told)
        if problem is None:
            if self._folder.key_of(told.client) is None:
                self._folder.bind(told.client, told.key)
            self._clients[node] = told.client
            log(INFO, "Node %d is client %d", node, told.client)
        else:
            self._left_out.add(node)
            log(WARNING, "Node %d is left out: %s", node, problem)

    def _problem(self, told: Description) -> str | None:
        client = told.client
        if not 0 <= client < self._num_clients:
            return f"its client-id is {client}, and num-clients is {self._num_clients}; raise it, or correct the id"
        if client in self._clients.values():
            return f"another node is client {client}; give each node a client-id of its own"
        if (key := self._folder.key_of(client)) not in (None, told.key):
            return (
                f"client {client} joined with key {key[:8]}, and this node has key {told.key[:8]}; if its machine was "
                f"replaced, end the run and use: fedadmm federation rebind {client}"
            )
        for theirs, ours in zip_longest(told.model, self._model, fillvalue="nothing"):
            if theirs != ours:
                return f"client {client} has another model: {theirs} where the server has {ours}; install the same app"
        return None
