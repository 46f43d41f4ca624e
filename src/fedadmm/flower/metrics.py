"""Rounds and nodes of a server as metrics of Prometheus, from the files in its folder: no part of a run, no torch."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedadmm.core.errors import InputError
from fedadmm.flower.node_status import client_rows
from fedadmm.runs.records import Record, RunFolder
from fedadmm.runs.sinks import numbers_of

SUMS = ("bytes_up", "bytes_down", "steps", "gradient_evaluations", "seconds", "clients", "refused", "lost")


def families(folder: Path) -> Iterator[Any]:
    """Yield the metrics of a server's folder, as they are now."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    records = [Record.from_json(table) for table in RunFolder(folder).read_records()]
    numbers = [numbers_of(record) for record in records]
    yield CounterMetricFamily("fedadmm_rounds", "Committed rounds.", value=len(records))
    for key in SUMS:
        total = sum(of_round.get(key, 0.0) for of_round in numbers)
        yield CounterMetricFamily(f"fedadmm_{key}", f"Sum of {key} over the committed rounds.", value=total)
    for key, value in (numbers[-1] if numbers else {}).items():
        yield GaugeMetricFamily(f"fedadmm_last_{key}", f"{key} of the last committed round.", value=value)
    file = folder / "rounds.jsonl"
    if file.exists():
        when = file.stat().st_mtime
        yield GaugeMetricFamily("fedadmm_last_round_time_seconds", "When a round was last committed.", value=when)
    yield from _of_nodes(folder)


def _of_nodes(folder: Path) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["client", "node"]
    seen = GaugeMetricFamily("fedadmm_node_seen_seconds", "When a node last answered.", labels=labels)
    applied = GaugeMetricFamily("fedadmm_node_applied_round", "Round of its last applied update.", labels=labels)
    norm = GaugeMetricFamily("fedadmm_node_upload_norm", "Norm of the last upload of a node.", labels=labels)
    refused = CounterMetricFamily("fedadmm_node_refused", "Answers of a node that were refused.", labels=labels)
    lost = CounterMetricFamily("fedadmm_node_lost", "Rounds in which no answer of a client's came.", labels=labels)
    for row in client_rows(folder):
        name = ["none" if value is None else str(value) for value in (row.client, row.node)]
        refused.add_metric(name, row.facts.refused)
        lost.add_metric(name, row.lost)
        for family, value in ((seen, row.facts.seen), (applied, row.applied), (norm, row.facts.norm)):
            if value is not None:
                family.add_metric(name, value)
    yield from (seen, applied, norm, refused, lost)


class ServerMetrics:
    """A collector of Prometheus's, which reads a server's folder whenever it is asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Any]:
        """Yield the metrics as they are now."""
        yield from families(self._folder)


def serve(folder: Path, *, address: str, port: int) -> None:
    """Answer Prometheus's requests about a server's folder until this process is ended."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; a server's is STATE-DIR/NAME/server, where the ServerApp runs")
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise InputError('metrics need prometheus-client; pip install "fedadmm[prometheus]"') from error
    registry = CollectorRegistry()
    registry.register(ServerMetrics(folder))
    try:
        _, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise InputError(f"cannot listen on {address}:{port}: {error.strerror}; give another --port") from error
    while thread.is_alive():
        time.sleep(1.0)
