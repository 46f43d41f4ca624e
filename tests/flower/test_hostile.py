"""Hostile and broken nodes: no message ends a run, and none is worth more than the node's own silence."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile import DESCRIPTIONS, SCORES, UPDATES, Attack
from local_grid import Array, LocalGrid, Message, assert_books_agree, be_a_task, start
from test_strategy import config_of, grid_of, server_of
from typer.testing import CliRunner

from fedadmm.algorithms import FedADMM
from fedadmm.cli.federation import app
from fedadmm.core.delivery import Request
from fedadmm.core.errors import InputError
from fedadmm.core.round import ClientResult, ClientStats
from fedadmm.flower import FederationSettings
from fedadmm.flower.messages import BadReplyError, pack_update, read_update
from fedadmm.flower.wire import Payload, Wire
from fedadmm.training.flat import FlatModel


class HostileGrid(LocalGrid):
    """A grid on which node 102, client 2, spoils its replies of a kind, with one attack after the other."""

    def __init__(self, config: dict[str, Any], *, kind: str, attacks: Iterable[Attack]) -> None:
        from flower_fedadmm.client_app import app

        super().__init__(app, config)
        self._kind, self._attacks = kind, iter(attacks)

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        if message.metadata.dst_node_id == 102 and message.metadata.message_type == self._kind:
            next(self._attacks)(reply)
        return reply


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logging.getLogger("flwr").addHandler(caplog.handler)
    yield caplog
    logging.getLogger("flwr").removeHandler(caplog.handler)


def test_each_attack_is_a_bad_reply_or_an_update_that_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        messages = strategy.configure_train(1, strategy.arrays, {}, grid)
        request = strategy._round.requests[2][1]
        (reply,) = grid.send_and_receive(messages[2:3])
        content, theta = reply.content, strategy.algorithm.download(strategy.checkpoint.server).theta
        for name, attack in {"nothing": lambda reply: None, **UPDATES}.items():
            reply.content = type(content)({key: type(record)(dict(record)) for key, record in content.items()})
            attack(reply)
            try:
                found = read_update(
                    reply,
                    strategy.wire,
                    request=request,
                    round=1,
                    theta=theta,
                    buffers=strategy.checkpoint.buffers,
                    largest=1e6,
                )
            except BadReplyError:
                assert name != "nothing"
            else:
                assert (name, found.finite) == (name, name == "nothing")


@pytest.mark.slow
def test_hostile_updates_are_refused_and_the_others_go_on_as_if_the_node_was_never_asked(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    config = config_of(tmp_path)
    with server_of(config) as strategy:
        grid = HostileGrid(config, kind="train", attacks=UPDATES.values())
        result = start(strategy, grid, rounds=len(UPDATES))
        for attack, record in zip(UPDATES, strategy._folder.records(), strict=True):
            assert (attack, record.clients, record.refused, record.lost) == (attack, (0, 1, 3), (2,), ())
            assert f"Client 2 is refused in round {record.round}:" in told.text
        assert result.train_metrics_clientapp[1]["num-refused"] == 1
        assert strategy.checkpoint.server.theta.dtype == torch.float32
        assert_books_agree(strategy, config, lambda client: tmp_path)


@pytest.mark.slow
def test_an_upload_beyond_a_multiple_of_the_running_median_is_refused(tmp_path: Path) -> None:
    def attack(reply: Message) -> None:
        arrays = reply.content["arrays"]
        name, array = next(iter(arrays.items()))
        arrays[name] = Array(array.numpy() * np.float32(50))

    config = config_of(tmp_path, max_norm="10x")
    with server_of(config) as strategy:
        start(strategy, HostileGrid(config, kind="train", attacks=[lambda reply: None, attack]), rounds=2)
        first, second = strategy._folder.records()
    assert (first.clients, second.clients, second.refused, second.oversized) == ((0, 1, 2, 3), (0, 1, 3), (2,), (2,))
    with pytest.raises(InputError, match=r"max_norm=0\.5x is out of range; use a number greater than 0, or a multiple"):
        FederationSettings(num_clients=1, max_norm="0.5x")


@pytest.mark.parametrize(
    ("sent", "fine"), [(0.5, True), (np.nan, False), (np.inf, False), (3e38, False), (1e12, False)]
)
def test_buffers_that_would_spoil_everybodys_are_refused(sent: float, fine: bool) -> None:
    model = FlatModel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
    wire, before = Wire(FedADMM(), model), model.buffers()
    own = before.floats.clone()
    before.floats[0] = own[0] = np.inf  # of its own, as an attention mask has
    own[1] = sent
    stats = ClientStats(1, 1, 0.5, before._replace(floats=own))
    update = ClientResult(0, wire.upload, stats, first_visit=False, finite=True)
    arrays, _ = wire.pack_upload(Payload(wire.upload, own), theta=model.weights, residual=None)
    be_a_task()
    reply = Message(pack_update(update, arrays, request=7, num_examples=1), 1, "train")
    read = read_update(reply, wire, request=Request(0, 7, 0), round=1, theta=model.weights, buffers=before)
    assert read.finite == fine


@pytest.mark.slow
def test_hostile_scores_are_left_out(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    config = config_of(tmp_path, fraction_evaluate=1.0)
    with server_of(config) as strategy:
        grid = HostileGrid(config, kind="evaluate", attacks=SCORES.values())
        result = start(strategy, grid, rounds=len(SCORES))
    assert all(0 <= scores["accuracy"] <= 1 for scores in result.evaluate_metrics_clientapp.values())
    left_out = {id(record) for record in told.records if record.getMessage().startswith("Node 102 was not evaluated")}
    assert len(left_out) == len(SCORES) == len(result.evaluate_metrics_clientapp), left_out


@pytest.mark.slow
def test_a_score_that_is_no_number_does_not_spoil_the_mean(tmp_path: Path) -> None:
    def attack(reply: Message) -> None:
        reply.content["metrics"]["accuracy"] = float("nan")

    config = config_of(tmp_path, fraction_evaluate=1.0)
    with server_of(config) as strategy:
        result = start(strategy, HostileGrid(config, kind="evaluate", attacks=[attack]), rounds=1)
    assert 0 <= result.evaluate_metrics_clientapp[1]["accuracy"] <= 1


@pytest.mark.parametrize("attack", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_a_node_that_does_not_say_properly_who_it_is_is_not_asked(attack: Attack, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with server_of(config) as strategy:
        grid = HostileGrid(config, kind="query", attacks=[attack])
        assert strategy._nodes.connected(grid).keys() == {0, 1, 3}


def test_a_reply_to_nobodys_question_is_passed_over(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        replies = list(grid.send_and_receive(strategy.configure_train(1, strategy.arrays, {}, grid)))
        replies[0].metadata.__dict__["_reply_to_message_id"] = "another"
        strategy.aggregate_train(1, replies)
        assert len(strategy._round.replies.missing) == 1


def test_another_key_that_claims_a_client_is_refused_until_it_is_rebound(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    config = config_of(tmp_path)
    for clients in [{0, 1, 2, 3}, {0, 1, 3}]:
        with server_of(config) as strategy:
            assert strategy._nodes.connected(grid_of(config)).keys() == clients
        (tmp_path / "digits" / "client-2" / "key").unlink()  # another machine, or an impostor, makes its own
    assert "Node 102 is left out: client 2 joined with key" in told.text
    done = CliRunner().invoke(app, ["rebind", "2", str(tmp_path / "digits" / "server")])
    assert done.exit_code == 0, done.output
    with server_of(config) as strategy:
        assert strategy._nodes.connected(grid_of(config)).keys() == {0, 1, 2, 3}


def test_what_another_node_has_signed_is_of_no_use(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    signed: dict[str, Any] = {}

    class Replaying(LocalGrid):
        def _answer(self, message: Message) -> Message:
            reply = super()._answer(message)
            if message.metadata.dst_node_id == 103:
                signed.update(reply.content["config"])
            else:
                reply.content["config"].update(signed)
            return reply

    from flower_fedadmm.client_app import app

    config = config_of(tmp_path)
    with server_of(config) as strategy:
        assert strategy._nodes.connected(Replaying(app, config)).keys() == {3}
    assert "it has not signed that it is client 3" in told.text


def test_rebind_names_a_folder_that_is_no_servers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the folder of a server that has run"):
        CliRunner().invoke(app, ["rebind", "2", str(tmp_path)], catch_exceptions=False)
