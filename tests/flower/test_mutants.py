"""Messages mutated by the thousand: whatever arrives is refused, or is what was asked for; nothing else ever follows.

What a mutant costs is a draw and a look at its bytes: the federation around it is made once for each kind of message.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_grid import LocalGrid, Message, start
from mutants import mutants
from test_secure_federation import config_of as secure_config
from test_strategy import config_of, grid_of, server_of

from fedadmm.core.mean import is_finite
from fedadmm.flower.apps import Node
from fedadmm.flower.descriptions import read_description
from fedadmm.flower.messages import BadReplyError, mean_scores, read_scores
from fedadmm.flower.own_data import task_maker
from fedadmm.flower.secure_round import KEYS, SHARES, UNMASK, read_masked
from fedadmm.flower.unfinished import Collected
from fedadmm.secure.protocol import VoidError

pytestmark = pytest.mark.slow

TOP_K = {"compression__name": "top_k", "compression__keep": 0.05}


@pytest.mark.parametrize("more", [{}, TOP_K, {"wire": "model"}], ids=["plain", "compressed", "models"])
def test_an_update_is_refused_or_is_one_of_the_client_that_was_asked(more: dict[str, Any], tmp_path: Path) -> None:
    config = config_of(tmp_path, **more)
    grid = grid_of(config)
    with server_of(config) as strategy:
        messages = strategy.configure_train(1, strategy.arrays, {}, grid)
        request, expected, form = strategy._round.requests[0][1], strategy._expected(), strategy.wire.upload
        (true,) = grid.send_and_receive(messages[:1])
        assert expected.read(true, request).finite

        def check(mutant: Message) -> None:
            try:
                result = expected.read(mutant, request)
            except BadReplyError:
                return
            assert result.client == request.client
            assert [(f.dtype, f.shape) for f in result.upload] == [(f.dtype, f.shape) for f in form]
            assert result.finite <= is_finite(result.upload)
            assert not result.finite or result.stats.upload_norm <= expected.largest
            assert result.stats.steps >= 0

        mutants(true, 200, check)


def test_scores_are_refused_or_are_numbers(tmp_path: Path) -> None:
    config = config_of(tmp_path, fraction_evaluate=1.0)
    grid = grid_of(config)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
        (asked, *_) = strategy.configure_evaluate(1, strategy.arrays, {}, grid)
        (true,) = grid.send_and_receive([asked])

        def check(mutant: Message) -> None:
            try:
                found = read_scores(mutant)
            except BadReplyError:
                return
            assert found.num_examples >= 1
            assert all(isinstance(value, float) for value in found.values.values())
            mean_scores([found, found])

        mutants(true, 120, check)


def test_a_description_is_refused_or_is_signed_by_the_client_that_it_names(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = Listening(grid_of(config), "query")
    with server_of(config) as strategy:
        assert len(strategy._nodes.connected(grid)) == 4
        question, true = grid.heard[-1]
        about = dict(question.content["config"]) | {"node": question.metadata.dst_node_id}
        own = read_description(true, **about)

        def check(mutant: Message) -> None:
            try:
                told = read_description(mutant, **about)
            except BadReplyError:
                return
            assert (told.client, bytes.fromhex(told.key)) == (own.client, bytes.fromhex(own.key))
            strategy._nodes._problem(told)

        mutants(true, 150, check)


class Listening(LocalGrid):
    """A grid that keeps the questions of a kind with their answers."""

    def __init__(self, grid: LocalGrid, *kinds: str) -> None:
        self.__dict__ |= grid.__dict__
        self._kinds, self.heard = kinds, list[tuple[Message, Message]]()

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        if message.metadata.message_type in self._kinds:
            self.heard.append((message, reply))
        return reply


class Repeating:
    """A grid that answers in each stage as nodes did before."""

    def __init__(self, said: dict[str, dict[int, Message]]) -> None:
        self._said = said

    def send_and_receive(self, messages: list[Message], *, timeout: float) -> Iterator[Message]:
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = str(number)
            reply = self._said[message.metadata.message_type][message.metadata.dst_node_id]
            reply.metadata.__dict__["_reply_to_message_id"] = str(number)
            yield reply


def test_a_sum_under_masks_is_the_true_one_or_void(tmp_path: Path) -> None:
    config = secure_config(tmp_path)
    grid = Listening(grid_of(config), KEYS, SHARES, UNMASK)
    with server_of(config) as strategy:
        replies = list(grid.send_and_receive(strategy.configure_train(1, strategy.arrays, {}, grid)))
        secure, encoding = strategy._round.secure, strategy.wire.encoding
        requests = {message.metadata.message_id: request for message, request in strategy._round.requests}
        read = {reply: read_masked(reply, encoding, request=_of(reply, requests)) for reply in replies}
        words = {result.client: result.upload for result in read.values()}
        collected = Collected(*secure._added(words), problems={}, digests={})
        true = secure._unmasked(collected, encoding)

        def upload(mutant: Message) -> None:
            try:
                found = read_masked(mutant, encoding, request=_of(mutant, requests))
            except BadReplyError:
                return
            assert not found.finite or [w.shape for w in found.upload] == [w.shape for w in words[found.client]]

        mutants(replies[0], 30, upload)
        stages: dict[str, Callable[[], Any]] = {
            KEYS: lambda: secure._exchange(degree, np.random.default_rng(0)),
            SHARES: lambda: secure._exchange(degree, np.random.default_rng(0)),
            UNMASK: lambda: secure._unmasked(collected, encoding),
        }
        said: dict[str, dict[int, Message]] = {kind: {} for kind in stages}
        for question, reply in grid.heard:
            said[question.metadata.message_type][question.metadata.dst_node_id] = reply
        kept, degree = secure.sum, len(next(iter(secure.sum.graph.values())))
        for kind in stages:
            secure._grid = Repeating(said)

            def check(_: Message, kind: str = kind) -> None:
                secure.sum = kept
                try:
                    found = stages[kind]()
                except VoidError:
                    return
                assert kind != UNMASK or all(map(np.array_equal, found, true))

            mutants(said[kind][100], 30, check)


def _of(reply: Message, requests: dict[str, Any]) -> Any:
    return requests[reply.metadata.reply_to_message_id]


class Asked:
    """A node after two rounds, made once, and a true request to it."""

    def __init__(self, folder: Path) -> None:
        from flower_fedadmm import task

        self.config = config_of(folder, fraction_evaluate=1.0, local__batch_size="full")
        grid, self._file = grid_of(self.config), folder / "digits" / "client-0" / "state" / "data.mdb"
        with server_of(self.config) as strategy:
            start(strategy, grid, rounds=2)
            (self.train, *_) = strategy.configure_train(3, strategy.arrays, {}, grid)
            (self.evaluate, *_) = strategy.configure_evaluate(3, strategy.arrays, {}, grid)
        make = task_maker(task.model, torch.nn.functional.cross_entropy, None)
        self.node = Node(grid.context(100), task.data, make)

    def state(self) -> bytes:
        return self._file.read_bytes()


def test_a_node_refuses_a_request_without_a_trace_or_does_what_it_was_asked(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    last = 0

    def train(mutant: Message) -> None:
        nonlocal last
        before = asked.state()
        try:
            reply = asked.node.train(mutant.content)
        except Exception:  # as Flower catches it
            assert asked.state() == before
            return
        if reply["metrics"]["finite"]:
            number = reply["config"]["number"]
            assert number >= last
            last = number
        else:
            assert asked.state() == before

    mutants(asked.train, 120, train)

    def evaluate(mutant: Message) -> None:
        before = asked.state()
        with suppress(Exception):  # as Flower catches it
            asked.node.evaluate(mutant.content)
        assert asked.state() == before

    mutants(asked.evaluate, 30, evaluate)
