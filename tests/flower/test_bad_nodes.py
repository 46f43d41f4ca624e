"""Nodes that are wrong: each is named and left out, and the round goes on without it."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_grid import Array, ArrayRecord, Error, LocalGrid, Message, RecordDict, start, strategy_of
from test_strategy import config_of, grid_of, server_of
from torch import nn

from fedadmm.core.errors import InputError
from fedadmm.flower import FederationSettings, client_app
from fedadmm.flower.messages import NoReplyError, reading


class Spoiling(LocalGrid):
    """A grid on which node 102, client 2, sends something else."""

    def __init__(self, *arguments: Any, spoil: Callable[[Message], None]) -> None:
        super().__init__(*arguments)
        self._spoil = spoil

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        if message.metadata.dst_node_id == 102 and message.metadata.message_type == "train":
            self._spoil(reply)
        return reply


def not_finite(reply: Message) -> None:
    delta = reply.content.array_records["arrays"]["delta"].numpy().copy()
    delta[7] = np.nan
    reply.content["arrays"] = ArrayRecord({"delta": Array(delta)})


def too_short(reply: Message) -> None:
    delta = reply.content.array_records["arrays"]["delta"].numpy()
    reply.content["arrays"] = ArrayRecord({"delta": Array(delta[1:].copy())})


def another_field(reply: Message) -> None:
    reply.content["arrays"] = ArrayRecord({"gradient": reply.content.array_records["arrays"]["delta"]})


@pytest.mark.parametrize("spoil", [not_finite, too_short, another_field])
def test_an_upload_that_is_no_use_is_refused_named_and_counted(
    spoil: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from flower_fedadmm.client_app import app

    config = config_of(tmp_path)
    logging.getLogger("flwr").addHandler(caplog.handler)
    with server_of(config) as strategy:
        result = start(strategy, Spoiling(app, config, spoil=spoil), rounds=1)
        (record,) = strategy._folder.records()
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert (record.clients, record.refused) == ((0, 1, 3), (2,))
    assert result.train_metrics_clientapp[1]["num-refused"] == 1
    assert "Client 2 is refused in round 1" in caplog.text


def test_a_client_with_another_model_is_left_out_with_the_difference(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from flower_fedadmm.client_app import app
    from flower_fedadmm.task import data

    other = client_app(model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), data=data)

    class Mixed(LocalGrid):
        def _answer(self, message: Message) -> Message:
            self.app = other if message.metadata.dst_node_id == 101 else app
            return super()._answer(message)

    config = config_of(tmp_path)
    logging.getLogger("flwr").addHandler(caplog.handler)
    with server_of(config) as strategy:
        start(strategy, Mixed(app, config), rounds=1)
        (record,) = strategy._folder.records()
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert (record.clients, record.lost) == ((0, 2, 3), (1,))
    assert "client 1 has another model: 1.weight 10x64 where the server has 1.weight 100x64" in caplog.text


def test_a_state_folder_of_another_federation_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=1)
    shutil.rmtree(tmp_path / "digits" / "server")  # and so the server begins a new federation
    grid = grid_of(config)
    with server_of(config) as strategy:
        grid.nodes = [100]
        strategy._nodes.connected(grid)
    assert "was written with federation" in grid.errors[0]
    assert "give this federation a name or a state-dir of its own" in grid.errors[0]


def test_two_nodes_of_one_client_are_one_too_many(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    grid.posing[101] = 100
    with server_of(config) as strategy:
        assert strategy._nodes.connected(grid).keys() == {0, 2, 3}


def test_a_full_disk_fails_the_nodes_round_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedadmm.state.node import NodeStore

    write = NodeStore.write

    def full(self: NodeStore, *arguments: Any, **named: Any) -> None:
        if self._client == 1:
            raise InputError("cannot write: No space left on device")
        write(self, *arguments, **named)

    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        with monkeypatch.context() as patch:
            patch.setattr(NodeStore, "write", full)
            start(strategy, grid, rounds=1)
        start(strategy, grid, rounds=1)  # there is room again
        first, second = strategy._folder.records()
    assert (first.clients, first.lost, second.clients) == ((0, 2, 3), (1,), (0, 1, 2, 3))
    assert "No space left on device" in grid.errors[0]
    assert strategy._folder.nodes.nodes[101].problem == "cannot write: No space left on device"


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("<class 'fedadmm.core.errors.InputError'>:<'no room;\nuse another disk'>", "use another disk"),
        ("<class 'TypeError'>:<'it's none'>", "TypeError: it's none"),
        ("<class 'own.Error'>:<''>", "Error:"),
        ("the app cannot be loaded", "the app cannot be loaded"),
        ("", "no reason was given"),
    ],
)
def test_what_an_app_raised_is_told_without_flowers_words(raised: str, told: str) -> None:
    reply = Message(Error(2, raised), reply_to=Message(RecordDict(), 100, "train"))
    with pytest.raises(NoReplyError) as found, reading(reply, "arrays"):
        pass
    assert str(found.value) == told


@pytest.mark.slow
def test_a_second_run_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with server_of(config_of(tmp_path)), pytest.raises(InputError, match=r"in use .* `flwr stop RUN_ID LINK`"):
        strategy_of(config_of(tmp_path))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_clients": 0}, "num_clients=0 is out of range"),
        ({"fraction_evaluate": 1.5}, "fraction_evaluate=1.5 is out of range; use a number from 0 to 1"),
        ({"round_timeout": 0.0}, "round_timeout=0.0 is out of range; use a finite number greater than 0"),
        ({"algorithm__name": "fedmagic"}, "name='fedmagic' is unknown; did you mean fedavg or"),
        ({"learning_rate": 0.1}, "unknown key 'learning_rate'; the keys are name"),
        ({"algorithm__name": "scaffold", "wire": "model"}, 'has step, c_change, theta, c; use wire="upload"'),
    ],
)
def test_a_mistake_in_the_run_config_is_one_sentence(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as mistake:
        strategy_of(config_of(tmp_path, **changes))
    assert sentence in str(mistake.value)


def test_a_node_without_a_client_id_is_told_how_to_get_one(tmp_path: Path) -> None:
    grid = grid_of(config_of(tmp_path))
    settings = FederationSettings.from_run_config(grid.config)
    context = grid.context(100)
    context.node_config = {}
    with pytest.raises(InputError, match='--node-config "client-id=0"'):
        settings.client_folder(context)
