"""Flower's grid, which looks for replies as often as the round is short: Flower's own looks every three seconds."""

import time
from collections.abc import Iterable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.superlink.grid import HttpGrid

SHORTEST, LONGEST = 0.1, 3.0  # seconds between two looks
SHARE = 0.05  # of the time that was waited so far: a look comes late by a twentieth at most


def prompt(grid: Grid) -> Grid:
    """Return a grid that looks for replies more often, where they come over the network."""
    return PromptGrid(grid) if isinstance(grid, HttpGrid) else grid


class PromptGrid(Grid):
    """Another grid, but for how it waits for replies."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

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
        return replies

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
