"""Seconds per round of the example app over local nodes, and bytes between nodes and SuperLink against the vector's.

python benchmarks/flower.py --nodes 4 --rounds 6
python benchmarks/flower.py --plain      # nodes as Flower starts them, with a Python process for each message
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from recording import show

from fedadmm.flower.local import LocalFederation
from fedadmm.flower.local.processes import family

APP = Path(__file__).parents[1] / "examples" / "flower-fedadmm"


class Meter:
    """A relay in front of the SuperLink that counts what passes, TLS and headers included."""

    def __init__(self, target: int) -> None:
        self.up = self.down = 0
        self._target, self._server = target, socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            far = socket.create_connection(("127.0.0.1", self._target))
            for source, sink, way in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self._relay, args=(source, sink, way), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
                setattr(self, way, getattr(self, way) + len(data))
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


class MeteredFederation(LocalFederation):
    """A federation whose nodes go through a meter."""

    meter: Meter | None = None

    @property
    def superlink_address(self) -> str:
        """Return the meter's address, in front of the SuperLink's."""
        if self.meter is None:
            self.meter = Meter(int(super().superlink_address.rpartition(":")[2]))
        return f"127.0.0.1:{self.meter.port}"


def cpu_of_nodes(federation: LocalFederation) -> float:
    """Return the seconds of a core that all nodes have used, with the processes that they started and saw end."""
    ticks = 0
    for name, process in federation.processes.items():
        for member in family(process) if name != "superlink" else ():
            fields = Path(f"/proc/{member.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # its own in user and system mode, and those of its children
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(federation: MeteredFederation, *, nodes: int, rounds: int, folder: Path) -> dict[str, str]:
    """Run the app and return what was measured."""
    app = shutil.copytree(APP, folder / "app")
    overrides = f"num-server-rounds={rounds} fraction-evaluate=0.0 num-clients={nodes} min-available-nodes={nodes}"
    environment = federation.command_environment
    subprocess.run(["flwr", "run", app, "lab", "--run-config", overrides], env=environment, check=True)
    lines = federation.folder / "server" / "fedadmm-state" / "digits" / "server" / "rounds.jsonl"
    passed: dict[int, tuple[float, ...]] = {}  # rounds done -> bytes up and down, seconds of a core, and the clock
    meter = federation.meter
    assert meter is not None
    while len(passed) < rounds:
        done = len(lines.read_text().splitlines()) if lines.exists() else 0
        if done and done not in passed:
            passed[done] = (meter.up, meter.down, cpu_of_nodes(federation), time.monotonic())
        time.sleep(0.2)
        assert all(process.alive for process in federation.processes.values()), "a process has ended"
        if done == rounds:
            break
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    first, last = min(passed), max(passed)
    up, down, cpu, clock = ((b - a) / (last - first) for a, b in zip(passed[first], passed[last], strict=True))
    up, down, cpu = up / nodes, down / nodes, cpu / nodes
    vector = records[-1]["bytes_up"] / nodes
    seconds = [record["seconds"] for record in records]
    return {
        "seconds of a round, median": f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})",
        "seconds a round, from the first commit to the last": f"{clock:.1f}",
        "seconds of a core that a node uses a round": f"{cpu:.1f}",
        "bytes of the upload's vector": f"{vector:,.0f}",
        "bytes that a node sends a round": f"{up:,.0f} ({up / vector:.2f} of the vector)",
        "bytes that a node receives a round": f"{down:,.0f} ({down / vector:.2f} of the vector)",
    }


def main() -> None:
    """Read the arguments, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--plain", action="store_true", help="nodes as Flower starts them")
    parser.add_argument("--record", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        federation = MeteredFederation(Path(name) / "federation")
        if arguments.plain:
            federation.supernode = ("flower-supernode",)
        try:
            federation.up(num_nodes=arguments.nodes)
            found = measure(federation, nodes=arguments.nodes, rounds=arguments.rounds, folder=Path(name))
        finally:
            federation.down()
    rows = [{"what": what, "measured": value} for what, value in found.items()]
    show(rows, title="A round of the example app over local nodes", record=arguments.record)


if __name__ == "__main__":
    main()
