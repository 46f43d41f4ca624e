"""What stands between replies and their reading: Flower's aggregators and wrappers, names of nodes, a terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import UPDATES, Attack, leaves_out, says
from local_grid import LocalGrid, Message, flowers, start
from test_hostile import HostileGrid
from test_secure_federation import config_of as secure_config
from test_strategy import config_of, grid_of, server_of
from test_wire import model_config
from typer.testing import CliRunner

from fedadmm.cli.federation import app
from fedadmm.flower import server_app
from fedadmm.flower.node_status import read_nodes
from fedadmm.flower.secure_round import KEYS
from fedadmm.runs.records import RunFolder


def _a_second_record(reply: Message) -> None:
    reply.content["more"] = reply.content["arrays"]


# What Flower's aggregators demand of all replies alike, and what they weigh a model by.
INCONSISTENT: dict[str, Attack] = {
    "no number of examples": says("metrics", num_examples=None),
    "a list of examples": says("metrics", num_examples=[1, 2]),
    "a score more": says("metrics", more=1.0),
    "a second record": _a_second_record,
    "nearly all the weight": says("metrics", num_examples=10**15),
}


@pytest.mark.slow
@pytest.mark.parametrize("attack", INCONSISTENT.values(), ids=INCONSISTENT)
def test_an_aggregator_of_flowers_sees_what_was_read_and_all_weigh_the_same(attack: Attack, tmp_path: Path) -> None:
    thetas = []
    for name, attacks in (("honest", [lambda reply: None]), ("hostile", [attack])):
        config = model_config(tmp_path, name=name)
        with server_of(config, aggregator=flowers.FedAvg()) as strategy:
            start(strategy, HostileGrid(config, kind="train", attacks=attacks), rounds=1)
            (record,) = strategy._folder.records()
            thetas.append(strategy.checkpoint.server.theta)
    refused = attack is _a_second_record
    assert (record.clients, record.refused) == (((0, 1, 3), (2,)) if refused else ((0, 1, 2, 3), ()))
    assert thetas[0].equal(thetas[1]) == (not refused)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["the header of a trillion floats", "no arrays", "bools", "the largest numbers"])
def test_a_wrapper_of_flowers_sees_sound_replies_alone(attack: str, tmp_path: Path) -> None:
    grid = HostileGrid(_two_rounds(tmp_path), kind="train", attacks=[UPDATES[attack]] * 2)
    assert [(record["clients"], record["refused"]) for record in _played(grid, tmp_path)] == [([0, 1, 3], [2])] * 2


def _two_rounds(folder: Path) -> dict[str, Any]:
    return model_config(folder, num_server_rounds=2)


def _played(grid: LocalGrid, folder: Path) -> list[dict[str, Any]]:
    """Return the records of an app with Flower's differential privacy around its strategy."""
    from flower_fedadmm import task

    def private(strategy: Any) -> Any:
        options = {"noise_multiplier": 0.1, "clipping_norm": 0.5, "num_sampled_clients": 4}
        return flowers.DifferentialPrivacyServerSideFixedClipping(strategy, **options)

    server_app(model=task.model, wrap=private)(grid, grid.context(100))
    return RunFolder(folder / "digits" / "server").read_records()


@pytest.mark.slow
def test_an_error_of_one_node_does_not_void_the_rounds_of_a_wrapper(tmp_path: Path) -> None:
    class Failing(LocalGrid):
        def _answer(self, message: Message) -> Message:
            if message.metadata.dst_node_id == 102 and message.metadata.message_type == "train":
                message.content.pop("config")
            return super()._answer(message)

    config = _two_rounds(tmp_path)
    records = _played(Failing(grid_of(config).app, config), tmp_path)
    assert [(record["clients"], record["lost"]) for record in records] == [([0, 1, 3], [2])] * 2


class Posing(LocalGrid):
    """A grid on which node 102 says in its replies that they come from another node."""

    def __init__(self, config: dict[str, Any], *, kind: str, source: int) -> None:
        super().__init__(grid_of(config).app, config)
        self._kind, self._source = kind, source

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        if message.metadata.dst_node_id == 102 and message.metadata.message_type == self._kind:
            reply.metadata.__dict__["_src_node_id"] = self._source
        return reply


def test_a_node_is_the_one_that_was_asked_and_not_the_one_that_it_names(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with server_of(config) as strategy:
        assert strategy._nodes.connected(Posing(config, kind="query", source=100)) == {i: 100 + i for i in range(4)}


@pytest.mark.slow
def test_scores_are_those_of_the_node_that_was_asked_and_count_once(tmp_path: Path) -> None:
    means = []
    for name, fate in (("once", "arrives"), ("twice", "doubled")):
        config = config_of(tmp_path, name=name, fraction_evaluate=1.0)
        grid = grid_of(config, fate=_on_evaluation(fate))
        with server_of(config) as strategy:
            means.append(start(strategy, grid, rounds=1).evaluate_metrics_clientapp[1])
    assert dict(means[0]) == dict(means[1])
    config = config_of(tmp_path, name="posing", fraction_evaluate=1.0)

    class Bad(Posing):
        def _answer(self, message: Message) -> Message:
            reply = super()._answer(message)
            if message.metadata.dst_node_id == 102 and message.metadata.message_type == "evaluate":
                leaves_out("metrics")(reply)
            return reply

    with server_of(config) as strategy:
        start(strategy, Bad(config, kind="evaluate", source=100), rounds=1)
        nodes = read_nodes(strategy._folder.folder.path)
    assert (nodes[100].refused, nodes[102].refused) == (0, 1)


def _on_evaluation(fate: str) -> Callable[[Message], str]:
    # That of node 102 alone: if it counted twice, the mean would be another.
    return lambda m: fate if (m.metadata.message_type, m.metadata.dst_node_id) == ("evaluate", 102) else "arrives"


def test_who_spoils_a_stage_of_secure_aggregation_is_found_from_the_status(tmp_path: Path) -> None:
    config = secure_config(tmp_path)
    with server_of(config) as strategy:
        start(strategy, HostileGrid(config, kind=KEYS, attacks=[says("secure", keys=[b"x"])]), rounds=1)
        (record,) = strategy._folder.records()
        facts = strategy._folder.nodes.nodes
    assert record.clients == (0, 1, 3, 4)
    assert [facts[100 + client].refused for client in range(5)] == [0, 0, 1, 0, 0]
    assert facts[102].problem == "keys is not a list of 3"


def test_what_a_node_says_moves_no_cursor(tmp_path: Path) -> None:
    config = config_of(tmp_path)

    def attack(reply: Message) -> None:
        reply.content["\x1b[2Jall is well\r\n"] = reply.content["config"]

    with server_of(config) as strategy:
        start(strategy, HostileGrid(config, kind="train", attacks=[attack]), rounds=1)
        server = strategy._folder.folder.path
    shown = CliRunner().invoke(app, ["status", "--server", str(server)]).output
    assert "?[2Jall is well??" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b[2J" not in (server / "log.jsonl").read_text()


def test_a_server_cannot_ask_a_node_to_work_for_ever(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        (message, *_) = strategy.configure_train(1, strategy.arrays, {}, grid)
    message.content["config"]["epochs"] = 2**40
    (reply,) = grid.send_and_receive([message])
    assert f"client 0 is asked for {2**40} epochs" in reply.error.reason
