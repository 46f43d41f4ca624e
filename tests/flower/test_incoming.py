"""A hostile SuperNode pushes parts of its own making: they are a message, or an error of that node, and end no run."""

import json
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_grid import Array, ArrayRecord, ConfigRecord, Message, be_a_task

from fedadmm.flower.incoming import MALFORMED, Incoming, ObjectUnavailableError
from fedadmm.flower.messages import BadReplyError, reading
from fedadmm.flower.prompt_grid import PromptGrid

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from flwr.app import MetricRecord, RecordDict
    from flwr.common.serde import message_to_proto
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id, get_object_tree


class Pushed:
    """A reply of node 7 to a question, as its parts lie in the SuperLink; a hostile node changes them."""

    def __init__(self) -> None:
        be_a_task()
        question = Message(RecordDict(), 7, "train", ttl=60.0)
        question.metadata.__dict__["_message_id"] = "a" * 64
        arrays = ArrayRecord({"delta": Array(np.arange(50, dtype=np.float32))})
        metrics, config = MetricRecord({"steps": 3}), ConfigRecord({"client-id": 0})
        self.true = Message(RecordDict({"arrays": arrays, "metrics": metrics, "config": config}), reply_to=question)
        self.true.metadata.__dict__["_message_id"] = self.true.object_id
        self.tree = get_object_tree(self.true)
        self.parts = {key: part.deflate() for key, part in get_all_nested_objects(self.true).items()}

    def envelope(self) -> Any:
        envelope = message_to_proto(self.true)
        envelope.ClearField("content")
        return envelope

    def incoming(self, *, most_bytes: int = 10**6) -> Incoming:
        return Incoming(self.envelope(), self.tree, most_bytes=most_bytes)

    def find(self, kind: bytes) -> str:
        (found,) = (key for key, part in self.parts.items() if part.startswith(kind + b" "))
        return found

    def replace_body(self, kind: bytes, body: bytes) -> None:
        """Change the body of a part, under its old id: the SuperLink looks at its length alone."""
        head = self.parts[self.find(kind)].split(b"\0", 1)[0].rsplit(b" ", 1)[0]
        self.parts[self.find(kind)] = head + b" %d" % len(body) + b"\0" + body

    def fetch(self, key: str) -> bytes:
        return self.parts[key]


def test_a_reply_is_put_together_from_its_parts() -> None:
    pushed = Pushed()
    reply = pushed.incoming().fetched(pushed.fetch)
    assert reply is not None
    assert (reply.metadata.reply_to_message_id, reply.metadata.message_id) == ("a" * 64, pushed.true.object_id)
    assert reply.content["arrays"]["delta"].numpy().tolist() == list(range(50))
    assert pushed.find(b"ArrayChunk") == get_object_id(pushed.parts[pushed.find(b"ArrayChunk")])


def test_who_answers_which_question_is_the_envelopes_word() -> None:
    pushed = Pushed()
    inside = pushed.envelope()
    inside.metadata.message_id, inside.metadata.reply_to_message_id, inside.metadata.src_node_id = "", "b" * 64, 99
    pushed.replace_body(b"Message", inside.SerializeToString())
    reply = pushed.incoming().fetched(pushed.fetch)
    assert reply is not None
    assert not reply.has_error()
    assert reply.metadata.reply_to_message_id == "a" * 64
    assert reply.metadata.src_node_id == pushed.true.metadata.src_node_id


@pytest.mark.parametrize("kind", [b"Message", b"RecordDict", b"ArrayRecord", b"Array", b"MetricRecord"])
@pytest.mark.parametrize("body", [b"", b"{}", b"\xff\xff", b"[" * 10_000, b'{"dtype": 1}'], ids=repr)
def test_parts_that_are_no_message_are_an_error_of_their_node(kind: bytes, body: bytes) -> None:
    pushed = Pushed()
    pushed.replace_body(kind, body)
    reply = pushed.incoming().fetched(pushed.fetch)
    assert reply is not None
    if reply.has_error():
        assert (reply.error.code, reply.metadata.reply_to_message_id) == (MALFORMED, "a" * 64)
        with pytest.raises(BadReplyError), reading(reply, "arrays"):
            pass
    else:
        assert kind in (b"Message", b"MetricRecord", b"RecordDict")  # of which an empty one is a valid one


def test_a_chunk_that_is_named_a_million_times_is_counted_before_it_is_copied() -> None:
    pushed = Pushed()
    body = {"dtype": "float32", "shape": [50], "stype": "numpy.ndarray", "arraychunk_ids": [0] * 300_000}
    pushed.replace_body(b"Array", json.dumps(body).encode())
    pushed.parts[pushed.find(b"ArrayChunk")] = b"ArrayChunk  1000000\0" + b"x" * 10**6  # 300 GB in all
    reply = pushed.incoming(most_bytes=10**7).fetched(pushed.fetch)
    assert reply is not None
    assert "far larger" in reply.error.reason


def test_nobody_waits_for_parts_that_do_not_come() -> None:
    pushed, late = Pushed(), set[str]()

    def fetch(key: str) -> bytes:
        if key in late:
            raise ObjectUnavailableError(key)
        return pushed.parts[key]

    incoming, late = pushed.incoming(), {pushed.find(b"ArrayChunk")}
    assert incoming.fetched(fetch) is None
    late = set()
    reply = incoming.fetched(fetch)
    assert reply is not None
    assert not reply.has_error()


@pytest.mark.parametrize("cases", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_whatever_is_pushed_is_a_message_or_an_error(cases: int) -> None:
    pushed = Pushed()
    true = dict(pushed.parts)

    @settings(max_examples=cases, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        pushed.parts = dict(true)
        for _ in range(data.draw(st.integers(1, 3))):
            key = data.draw(st.sampled_from(sorted(true)))
            part = bytearray(pushed.parts[key])
            begin = data.draw(st.integers(0, len(part)))
            part[begin : begin + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=40))
            pushed.parts[key] = bytes(part)
        reply = pushed.incoming().fetched(pushed.fetch)
        assert reply is not None
        assert reply.metadata.reply_to_message_id == "a" * 64
        assert isinstance(reply.error.reason if reply.has_error() else reply.content, str | RecordDict)

    check()


def test_a_broken_reply_does_not_take_the_others_with_it() -> None:
    good, bad, stalled = Pushed(), Pushed(), Pushed()
    bad.replace_body(b"Message", b"\xff")
    announced, confirmed = [], []
    for number, pushed in enumerate([good, bad, stalled]):
        envelope = pushed.envelope()
        envelope.metadata.reply_to_message_id = str(number)
        announced.append((envelope, pushed.tree, pushed))

    def pull(request: Any) -> Any:
        found = [each for each in announced if each[0].metadata.reply_to_message_id in request.message_ids]
        announced[:] = [each for each in announced if each not in found]  # a reply is announced once
        found.sort(key=lambda each: each[0].metadata.reply_to_message_id)
        return SimpleNamespace(messages_list=[each[0] for each in found], message_object_trees=[e[1] for e in found])

    def pull_object(request: Any) -> Any:
        pushed = asked.pop(0)
        there = pushed is not stalled
        return SimpleNamespace(
            object_found=True, object_available=there, object_content=pushed.parts[request.object_id]
        )

    client = SimpleNamespace(
        PullMessages=pull, PullObject=pull_object, ConfirmMessageReceived=lambda own: confirmed.append(own)
    )
    http: Any = SimpleNamespace(_runtime_client=client, node=None, run=SimpleNamespace(run_id=1), push_messages=list)
    grid = PromptGrid(http, most_bytes=10**6)
    num_parts = len(good.parts)
    replies = {}
    for question, pushed in (("0", good), ("1", bad), ("2", stalled)):
        asked = [pushed] * num_parts
        for reply in grid.pull_messages([question]):
            replies[question] = reply.has_error()
    assert (replies, len(confirmed)) == ({"0": False, "1": True}, 2)
    assert list(grid._incoming) == ["2"]
    asked = [stalled] * 100
    assert list(grid.send_and_receive(["2"], timeout=0.2)) == []  # type: ignore[list-item]
    assert not grid._incoming
