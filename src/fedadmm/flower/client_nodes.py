"""Which node is which client: asked of every node once, as Flower draws the ids of nodes."""

import secrets
import time
from collections.abc import Collection
from itertools import zip_longest
from logging import INFO, WARNING

from flwr.app import Message, MessageType
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedadmm.core.delivery import NONE, LateError, Request, settled
from fedadmm.core.errors import InputError
from fedadmm.flower.descriptions import Description, pack_question, read_description
from fedadmm.flower.messages import BadReplyError, NoReplyError, printable
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.settings import FederationSettings

POLL = 1.0  # seconds between two looks at who is there
PAUSE = 10  # times as long as it was waited for in vain a node is left alone: it costs a tenth of the time at most


class ClientNodes:
    """The nodes that are known, each with its client."""

    def __init__(self, settings: FederationSettings, *, folder: ServerFolder, model: list[str]) -> None:
        self._folder, self._model = folder, model
        self._num_clients, self._timeout = settings.num_clients, min(settings.round_timeout, settings.wait_limit)
        self._limit, self._fewest = settings.wait_limit, settings.min_train_nodes
        # How many nodes a round waits for: fewer, once they were waited for in vain.
        self._enough = self._most = max(settings.min_available_nodes, settings.min_train_nodes)
        self._clients: dict[int, int] = {}  # node -> client
        self._told: dict[int, Description] = {}  # by each client, when it was asked
        self._left_out: set[int] = set()
        self._not_before: dict[int, float] = {}  # when a node that did not answer is asked again

    def connected(self, grid: Grid) -> dict[int, int]:
        """Return the node of each client that is connected."""
        online = set(grid.get_node_ids())
        known = self._clients.keys() | self._left_out
        self._ask(grid, sorted(n for n in online - known if time.monotonic() >= self._not_before.get(n, 0.0)))
        return {self._clients[node]: node for node in online if node in self._clients}

    def enough(self, grid: Grid, *, wanted: Collection[int] = ()) -> dict[int, int]:
        """Return the connected, once min-available-nodes are there; after wait-limit, those that are.

        wanted: clients that have to be among them. Who was waited for in vain is not waited for again, until more nodes
        are there.
        """
        told, deadline = None, time.monotonic() + self._limit
        while True:
            found = self.connected(grid)
            if len(found) >= self._enough and found.keys() >= set(wanted):
                break
            if time.monotonic() >= deadline:
                if len(found) < self._fewest:
                    raise InputError(
                        f"{len(found)} nodes are there after {self._limit:g} seconds (wait-limit), and a round needs "
                        f"{self._fewest} (min-train-nodes); start nodes and run again, which goes on from here"
                    )
                log(WARNING, "Going on with %d of %d nodes: wait-limit is over", len(found), self._enough)
                break
            if told != len(found):
                told = len(found)
                log(INFO, "Waiting for nodes: %d of %d (min-available-nodes) are there", told, self._enough)
            time.sleep(min(POLL, self._limit))
        self._enough = min(len(found), self._most)
        return found

    def verify(self, grid: Grid) -> None:
        """Compare what connected clients keep with what was applied of them: numbers, and digests of states.

        No state moves. A digest is what the client sent with the update, if it did.
        """
        connected = self.connected(grid)
        facts = self._folder.nodes.nodes
        problems = [f"node {node} is left out: {facts[node].problem}" for node in sorted(self._left_out)]
        for client in range(self._num_clients):
            number, applied = self._folder.new_number(), self._folder.applied(client)
            if client not in connected:
                log(WARNING, "Client %d is not connected, and is not compared", client)
                continue
            told, known = self._told[client], self._folder.digest_of(client)
            try:
                settled(told.journal, Request(client, number, applied, self._folder.rollback))
            except (InputError, LateError) as error:
                problems.append(str(error))
                continue
            if known is None or not told.digests:
                log(INFO, "Client %d is in step: update %d was applied last; no digest is known", client, applied)
            elif known == told.digests[applied != told.journal.acknowledged]:
                log(INFO, "Client %d is in step: update %d was applied last, digest %s", client, applied, known[:8])
            else:
                problems.append(
                    f"client {client} has another state under update {applied} than it had when that was applied; "
                    f"restore its folder, or use: {self._rebind(client)} --anew"
                )
        if problems:
            raise InputError("\n".join(problems))

    def check_rollback(self, grid: Grid, round: int, *, force: bool) -> None:
        """Raise an error that names the clients which cannot go back to a round, and why; with force, log it."""
        connected, number, problems = self.connected(grid), self._folder.new_number(), []
        for client, then in self._folder.applied_after(round).items():
            applied = NONE if then is None else then[1].number
            if client not in connected:
                problems.append(
                    f"client {client} is not connected, and cannot be asked what it has kept; start its node"
                )
                continue
            try:
                settled(self._told[client].journal, Request(client, number + 1, applied, number))
            except (InputError, LateError) as error:
                problems.append(str(error))
        if problems and not force:
            told = "\n".join(problems)
            raise InputError(
                f"not all clients can go back to round {round}, and nothing was changed; --force goes back without "
                f"those that cannot, which are then left out until they can:\n{told}"
            )
        for problem in problems:
            log(WARNING, "%s", problem)

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        if nodes:
            began, question, federation = time.monotonic(), secrets.token_hex(16), self._folder.federation
            messages = [
                Message(pack_question(federation, question), node, MessageType.QUERY, ttl=self._timeout)
                for node in nodes
            ]
            replies = grid.send_and_receive(messages, timeout=self._timeout)
            # A reply is that of the node that was asked by the message it answers, whatever it says.
            asked = {message.metadata.message_id: message.metadata.dst_node_id for message in messages}
            found = [(asked[id], reply) for reply in replies if (id := reply.metadata.reply_to_message_id) in asked]
            for node, reply in sorted(found, key=lambda pair: pair[0]):
                self._note(node, reply, question)
            self._folder.nodes.write()
            now = time.monotonic()
            self._not_before |= dict.fromkeys(nodes, now + PAUSE * (now - began))

    def _note(self, node: int, reply: Message, question: str) -> None:
        nodes = self._folder.nodes
        if node in self._clients or node in self._left_out:
            return  # it answers twice
        try:
            told = read_description(reply, federation=self._folder.federation, question=question, node=node)
        except (BadReplyError, NoReplyError) as error:
            (nodes.refused if isinstance(error, BadReplyError) else nodes.failed)(node, str(error))
            log(WARNING, "Node %d is not asked: %s", node, error)
            return
        problem = self._problem(told)
        if problem is None:
            if self._folder.key_of(told.client) is None:
                self._folder.bind(told.client, told.key)
            self._clients[node], self._told[told.client] = told.client, told
            nodes.answered(node, client=told.client)
            log(INFO, "Node %d is client %d", node, told.client)
        else:
            self._left_out.add(node)
            nodes.refused(node, problem)
            log(WARNING, "Node %d is left out: %s", node, problem)

    def _rebind(self, client: int) -> str:
        return f"fedadmm federation rebind {client} {self._folder.folder.path}"

    def _problem(self, told: Description) -> str | None:
        client = told.client
        if not 0 <= client < self._num_clients:
            return f"its client-id is {client}, and num-clients is {self._num_clients}; raise it, or correct the id"
        if client in self._clients.values():
            return f"another node is client {client}; give each node a client-id of its own"
        if (key := self._folder.key_of(client)) not in (None, told.key):
            return (
                f"client {client} joined with key {key[:8]}, and this node has key {told.key[:8]}; if its machine was "
                f"replaced, end the run and use: {self._rebind(client)}"
            )
        for theirs, ours in zip_longest(told.model, self._model, fillvalue="nothing"):
            if theirs != ours:
                line = printable(theirs)
                return f"client {client} has another model: {line} where the server has {ours}; install the same app"
        return None
