"""Replies on their way from the SuperLink: what a hostile SuperNode may have pushed is put together with care.

A reply comes in parts: an envelope, which the SuperLink has compared with the question, and objects, of which it knows
the length alone. Flower puts them together at once, and a part that is wrong ends the ServerApp. Here a reply whose
parts are no message becomes an error reply of its own node, and nobody waits for parts that do not come. What is
inside says nothing of who sent it, and to which question: that is the envelope's word.
"""

import json
from collections.abc import Callable

import httpx
from flwr.app import Array, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.serde_utils import metadata_from_proto
from flwr.proto.message_pb2 import Message as Envelope
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_type_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents

MALFORMED = 4000  # the code of an error reply in the place of one that cannot be read; Flower's own are below 100

Fetch = Callable[[str], bytes]  # of an object by its id; ObjectUnavailableError: it has not come yet


class TooLargeError(Exception):
    """A reply of more bytes than any that can be meant."""


class Incoming:
    """A reply that the SuperLink has announced, and whose parts are fetched as they come."""

    def __init__(self, envelope: Envelope, tree: ObjectTree, *, most_bytes: int) -> None:
        self.metadata = metadata_from_proto(envelope.metadata)  # what the SuperLink vouches for
        self._left = most_bytes
        self._missing = list(dict.fromkeys(each.object_id for each in iterate_object_tree(tree)))
        self._parts: dict[str, bytes] = {}

    def fetched(self, fetch: Fetch) -> Message | None:
        """Fetch what is there, and return the reply, or an error in its place; None: parts are still to come."""
        try:
            while self._missing:
                part = fetch(self._missing[-1])
                self._count(len(part))
                self._parts[self._missing.pop()] = part
            return self._put_together()
        except ObjectUnavailableError:
            return None
        except httpx.HTTPError:
            raise  # the SuperLink's, and no node's
        except Exception as error:  # no reply may end a run
            told = str(error) if isinstance(error, TooLargeError) else f"its parts do not form a message: {error!r}"
            return error_reply(self.metadata, told)

    def _count(self, num_bytes: int) -> None:
        self._left -= num_bytes
        if self._left < 0:
            raise TooLargeError("it is far larger than any reply that was asked for")

    def _put_together(self) -> Message:
        for part in self._parts.values():
            if get_object_type_from_object_content(part) == Array.__qualname__:
                # An array names its chunks, and may name one a million times.
                children = get_object_children_ids_from_object_content(part)
                for place in json.loads(get_object_body(part, Array).decode())["arraychunk_ids"]:
                    self._count(len(self._parts[children[place]]))
        message = inflate_object_from_contents(self.metadata.message_id, self._parts)
        if not isinstance(message, Message):
            raise TypeError(f"it is {type(message).__name__}")
        if message.has_error():
            return make_message(metadata=self.metadata, error=message.error)
        if not isinstance(message.content, RecordDict):
            raise TypeError(f"it holds {type(message.content).__name__}")
        return make_message(metadata=self.metadata, content=message.content)


def error_reply(metadata: Metadata, reason: str) -> Message:
    """Return an error reply in the place of one that cannot be read."""
    return make_message(metadata=metadata, error=Error(code=MALFORMED, reason=reason))
