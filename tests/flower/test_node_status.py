"""What operators ask: who is there, who was refused and lost, and why."""

import json
import logging
import os
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_grid import Message, start
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from test_hostile import HostileGrid
from test_strategy import config_of, grid_of, server_of
from typer.testing import CliRunner

from fedadmm.cli import console
from fedadmm.cli.federation import app
from fedadmm.core.errors import InputError
from fedadmm.flower import json_log, server_app
from fedadmm.flower.metrics import ServerMetrics
from fedadmm.flower.node_status import NodeFacts, client_rows, read_nodes
from fedadmm.runs.records import Record, RunFolder

DEPLOY = Path(__file__).parents[2] / "deploy"


def spoil(reply: Message) -> None:
    reply.content["metrics"]["steps"] = float("inf")


def played(folder: Path, **changes: Any) -> Path:
    """Return the folder of a server after two rounds in which client 2 is hostile, and client 3 away in the second."""
    config = config_of(folder, **changes)
    grid = HostileGrid(config, kind="train", attacks=[spoil, spoil])
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
        grid.nodes.remove(103)
        start(strategy, grid, rounds=1)
    return folder / "digits" / "server"


@pytest.mark.slow
def test_the_hostile_and_the_lost_are_found_from_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = played(tmp_path)
    rows = client_rows(server)
    assert [(row.client, row.node, row.applied, row.facts.refused, row.lost) for row in rows] == [
        (0, 100, 2, 0, 0),
        (1, 101, 2, 0, 0),
        (2, 102, None, 2, 0),
        (3, 103, 1, 0, 1),
    ]
    assert "steps" in rows[2].facts.problem
    monkeypatch.setattr(console.out, "width", 80)
    said = CliRunner().invoke(app, ["status", "--server", str(server)]).stdout
    (line,) = [line for line in said.splitlines() if line.split()[:2] == ["2", "102"]]
    assert line.split()[-2:] == ["2", "0"]  # refused, lost
    assert re.search(r"client 2, node 102, \d{4}-\d\d-\d\d \d\d:\d\dZ: steps is inf", said)


def test_a_node_that_is_left_out_has_a_row_with_the_reason(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    grid.posing[101] = 100
    with server_of(config) as strategy:
        strategy._nodes.connected(grid)
    (row,) = [row for row in client_rows(tmp_path / "digits" / "server") if row.client is None]
    assert (row.node, row.facts.refused) == (101, 1)
    assert "it has not signed that it is client 0" in row.facts.problem


@pytest.mark.slow
def test_state_models_and_keys_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    from flower_fedadmm import task

    config = config_of(tmp_path / "made", num_server_rounds=1, fraction_evaluate=1.0)
    before = os.umask(0)
    try:
        grid = grid_of(config)
        server_app(model=task.model)(grid, grid.context(100))
    finally:
        os.umask(before)
    made = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert {"key", "data.mdb", "model.safetensors", "rounds.jsonl", "nodes.json", "lock"} <= {
        path.name for path in made
    }
    modes = {path: path.stat().st_mode & 0o777 for path in made}
    assert {path: oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


@pytest.mark.slow
def test_prometheus_reads_what_the_files_say(tmp_path: Path) -> None:
    server = played(tmp_path)
    registry = CollectorRegistry()
    registry.register(ServerMetrics(server))
    families = text_string_to_metric_families(generate_latest(registry).decode())  # Prometheus's own reader
    samples = {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
    records = [Record.from_json(table) for table in RunFolder(server).read_records()]
    assert samples["fedadmm_rounds_total",] == 2
    assert samples["fedadmm_refused_total",] == 2
    assert samples["fedadmm_lost_total",] == 1
    assert samples["fedadmm_bytes_up_total",] == sum(record.bytes_up for record in records)
    assert samples["fedadmm_last_client_loss",] == records[-1].client_loss
    assert samples["fedadmm_node_refused_total", "2", "102"] == 2
    assert samples["fedadmm_last_upload_norm",] == records[-1].upload_norm
    norms = {client: samples["fedadmm_node_upload_norm", str(client), str(100 + client)] for client in (0, 1)}
    # Of the last round 2 was refused, and 3 was away.
    assert statistics.median(norms.values()) == pytest.approx(records[-1].upload_norm)
    assert ("fedadmm_node_upload_norm", "2", "102") not in samples  # nothing of it could be read
    assert samples["fedadmm_node_lost_total", "3", "103"] == 1
    assert samples["fedadmm_node_applied_round", "3", "103"] == 1
    # Every metric that the example of alerts names is there; an accuracy where the server has examples to test on.
    alerts = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    named = {name for rule in rules for name in re.findall(r"fedadmm_\w+", rule["expr"])}
    assert named - {name for name, *_ in samples} == {"fedadmm_last_accuracy"}


@pytest.mark.slow
def test_the_servers_log_is_lines_of_json(tmp_path: Path) -> None:
    server = played(tmp_path)
    lines = [json.loads(line) for line in (server / "log.jsonl").read_text().splitlines()]
    warnings = [line["message"] for line in lines if line["level"] == "WARNING"]
    assert any(text.startswith("Client 2 is refused in round 1") for text in warnings)


def test_a_full_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_log, "MOST_BYTES", 300)
    with json_log.lines_of_log(tmp_path / "log.jsonl"):
        for _ in range(100):
            logging.getLogger("flwr").warning("a line of a log")
    assert len(list(tmp_path.glob("log.jsonl*"))) == 1 + json_log.FILES
    assert all(path.stat().st_size <= 300 for path in tmp_path.glob("log.jsonl*"))


def test_a_status_file_of_another_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text('{"7": {"client": 1, "seen": 2.0, "of_a_later_version": 3}}')
    assert read_nodes(tmp_path) == {7: NodeFacts(client=1, seen=2.0)}


def test_a_status_file_that_is_damaged_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text("[]")
    with pytest.raises(InputError, match="remove it"):
        read_nodes(tmp_path)
