"""Waiting has limits: nobody who is away, or does not answer, holds a run for ever."""

import time
from pathlib import Path

import pytest
from local_grid import start
from test_strategy import config_of, grid_of, server_of

from fedadmm.core.errors import InputError
from fedadmm.flower import client_nodes, server_app


@pytest.mark.slow
def test_after_the_limit_the_round_goes_on_with_who_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(client_nodes, "log", lambda level, text, *values: told.append(text % values))
    config = config_of(tmp_path, min_available_nodes=4, wait_limit=0.1, min_train_nodes=3)
    grid = grid_of(config)
    *grid.nodes, dead = grid.nodes
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        assert told.count("Going on with 3 of 4 nodes: wait-limit is over") == 1  # it is not waited for again
        grid.nodes.append(dead)
        start(strategy, grid, rounds=1)
        records = strategy._folder.records()
        assert strategy._nodes._enough == 4  # until it is back
    assert [record.clients for record in records] == [(0, 1, 2), (0, 1, 2), (0, 1, 2, 3)]


def test_with_too_few_nodes_the_run_ends_with_a_sentence(tmp_path: Path) -> None:
    config = config_of(tmp_path, min_available_nodes=1, wait_limit=0.05, min_train_nodes=3)
    grid = grid_of(config)
    grid.nodes = grid.nodes[:2]
    with server_of(config) as strategy, pytest.raises(InputError, match="2 nodes are there after"):
        start(strategy, grid, rounds=1)


@pytest.mark.slow
def test_a_run_that_applies_nothing_has_failed(tmp_path: Path) -> None:
    from flower_fedadmm import task

    def fate(message: object) -> str:
        return "reply lost" if message.metadata.message_type == "train" else "arrives"

    grid = grid_of(config_of(tmp_path, num_server_rounds=2), fate=fate)
    with pytest.raises(InputError, match=r"no update was applied in round 1 to 2; .* --server \S+/server says why"):
        server_app(model=task.model)(grid, grid.context(100))
    server_app(model=task.model)(grid, grid.context(100))  # there is no round left to play


@pytest.mark.slow
def test_a_node_that_never_says_who_it_is_costs_a_part_of_the_time(tmp_path: Path) -> None:
    asked = []

    def fate(message: object) -> str:
        if message.metadata.message_type == "query" and message.metadata.dst_node_id == 103:
            asked.append(time.monotonic())
            time.sleep(0.2)
            return "reply lost"
        return "arrives"

    config = config_of(tmp_path, min_available_nodes=3)
    with server_of(config) as strategy:
        start(strategy, grid_of(config, fate=fate), rounds=4)
        records = strategy._folder.records()
    assert [record.clients for record in records] == [(0, 1, 2)] * 4
    assert len(asked) <= 2  # once, and not again for ten times as long
