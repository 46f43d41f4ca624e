"""Flower's grid, but for how replies are had: as soon as they are there, and whatever they are made of.

Flower's own looks for them every three seconds, waits for parts that a node never sends, and ends with what it cannot
put together (flower/incoming.py).
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.superlink.grid import HttpGrid

from fedadmm.flower.incoming import Incoming

SHORTEST, LONGEST = 0.1, 3.0  # seconds between two looks
SHARE = 0.05  # of the time that was waited so far: a look comes late by a twentieth at most


def prompt(grid: Grid, *, most_bytes: int) -> Grid:
    """Return a grid that looks for replies more often, where they come over the network.

    most_bytes: of a reply; a larger one is not read to its end.
    """
    return PromptGrid(grid, most_bytes=most_bytes) if isinstance(grid, HttpGrid) else grid


class AroundGrid(Grid):
    """Another grid, of which some things are changed."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages, and return the replies that come in time."""
        return self._grid.send_and_receive(messages, timeout=timeout)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, and return their ids."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to messages that have come by now."""
        return self._grid.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are connected."""
        return self._grid.get_node_ids()

    def create_message(self, content: RecordDict, *rest: Any, **options: Any) -> Message:
        """Return a message."""
        return self._grid.create_message(content, *rest, **options)

    def set_run(self, run: Any) -> None:
        """Set the run."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run."""
        return self._grid.run


class ScreenedGrid(AroundGrid):
    """A grid that passes on sound replies alone, for what does not look before it decodes."""

    def __init__(self, grid: Grid, sound: Callable[[Iterable[Message]], list[Message]]) -> None:
        super().__init__(grid)
        self._sound = sound

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages, and return the replies that come in time and are sound."""
        return self._sound(super().send_and_receive(messages, timeout=timeout))


class PromptGrid(AroundGrid):
    """A grid that does not wait longer than it has to."""

    def __init__(self, grid: HttpGrid, *, most_bytes: int) -> None:
        super().__init__(grid)
        self._http, self._most_bytes = grid, most_bytes
        self._incoming: dict[str, Incoming] = {}  # by the question: announced once, and not whole yet

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages, and return the replies that come in time."""
        waiting, replies, began = set(self.push_messages(messages)), [], time.monotonic()
        while waiting:
            found = list(self.pull_messages(waiting))
            replies += found
            waiting.difference_update(reply.metadata.reply_to_message_id for reply in found)
            waited = time.monotonic() - began
            if not waiting or (timeout is not None and waited >= timeout):
                break
            pause = min(LONGEST, max(SHORTEST, SHARE * waited))
            time.sleep(pause if timeout is None else min(pause, timeout - waited))
        for question in waiting:  # nobody asks for it again
            self._incoming.pop(question, None)
        return replies

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to messages that have come by now, each whole or as an error."""
        asked = set(message_ids)
        client, node, run = self._http._runtime_client, self._http.node, self._http.run.run_id
        fetch = make_pull_object_fn_protobuf(client.PullObject, node, run)
        found = client.PullMessages(PullAppMessagesRequest(message_ids=asked - self._incoming.keys()))
        for envelope, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            incoming = Incoming(envelope, tree, most_bytes=self._most_bytes)
            self._incoming[incoming.metadata.reply_to_message_id] = incoming
        replies = []
        for question in asked & self._incoming.keys():
            reply = self._incoming[question].fetched(fetch)
            if reply is not None:
                del self._incoming[question]
                own = reply.metadata.message_id
                client.ConfirmMessageReceived(
                    ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=own)
                )
                replies.append(reply)
        return replies
