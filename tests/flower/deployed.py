"""The example app on a real SuperLink and real SuperNodes, with TLS and keys, on loopback."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from local_grid import APP, assert_books_agree, run_config, strategy_of

from fedadmm.flower.local import LocalFederation
from fedadmm.flower.local.processes import Started, family

# A client that obeys: it kills its SuperNode, and this process, once the state is on the disk and before the reply has
# left; or it spoils its reply.
OBEDIENT_CLIENT = """
import os
import signal
from pathlib import Path

from fedadmm.flower import client_app
from flower_fedadmm.hostile import PARTS, SCORES, UPDATES
from flower_fedadmm.task import data, model


def spoil(message, context, call_next):
    reply = call_next(message, context)
    kind = message.metadata.message_type
    orders = Path(f"attacks-{kind}")
    if orders.exists():
        attack, *rest = orders.read_text().splitlines()
        {"train": UPDATES | PARTS, "evaluate": SCORES}[kind][attack](reply)
        orders.write_text("\\n".join(rest)) if rest else orders.unlink()
    return reply


def die_after_commit(message, context, call_next):
    reply = call_next(message, context)
    order = Path("die-after-commit")
    kind, _, number = order.read_text().partition(" ") if order.exists() else ("", "", "")
    if message.metadata.message_type == kind:
        supernode = int(number)
        order.unlink()
        os.kill(supernode, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return reply


app = client_app(model=model, data=data, mods=[die_after_commit, spoil])
"""


class Deployed:
    """A federation of some nodes, and the runs of the app on it."""

    def __init__(self, folder: Path, *, num_nodes: int = 3, **changes: Any) -> None:
        self.federation, self._num_nodes = LocalFederation(folder / "federation"), num_nodes
        usual = {"num_clients": num_nodes, "min_available_nodes": num_nodes, "fraction_evaluate": 0.0}
        self.changes = {key.replace("_", "-"): value for key, value in {**usual, **changes}.items()}
        self.app = shutil.copytree(APP, folder / "app")
        (self.app / "flower_fedadmm" / "client_app.py").write_text(OBEDIENT_CLIENT)
        shutil.copy(Path(__file__).with_name("hostile.py"), self.app / "flower_fedadmm" / "hostile.py")
        self.server = self.federation.folder / "server" / "fedadmm-state" / "digits" / "server"

    def up(self) -> None:
        """Start what is not running."""
        self.federation.up(num_nodes=self._num_nodes)

    def run(self) -> int:
        """Submit a run, and return its id."""
        overrides = " ".join(f"{key}={value}" for key, value in self.changes.items())
        said = self._flwr("run", str(self.app), "lab", "--run-config", overrides, "--format", "json")
        return int(json.loads(said)["run-id"])

    def status(self, run: int) -> str:
        """Return the status of a run: its exit code says nothing."""
        return self._statuses()[run]

    def unfinished(self) -> list[int]:
        """Return the runs that have not ended."""
        return [run for run, status in self._statuses().items() if not status.startswith("finished")]

    def _statuses(self) -> dict[int, str]:
        listed = json.loads(self._flwr("list", "lab", "--format", "json"))
        return {int(entry["run-id"]): str(entry["status"]) for entry in listed["runs"]}

    def pursue(self, happened: Callable[[], bool], *, seconds: float) -> None:
        """Wait for something, with a run that goes on: one is begun whenever none is."""
        deadline = time.monotonic() + seconds
        while not happened():
            if not self.unfinished() and not happened():
                self.run()
            # Asking takes seconds of a core, which the nodes need.
            pause = time.monotonic() + 10.0
            while time.monotonic() < pause and not happened():
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.5)

    def wait(self, run: int, *, rounds: int, seconds: float) -> None:
        """Wait until a run has committed its last round and has ended, as it should."""
        # Asking for its status takes seconds of a core, which the nodes need: look at the server's folder first.
        self.until(lambda: self.rounds() == rounds, seconds=seconds)
        self.until(lambda: self.status(run).startswith("finished"), seconds=seconds, every=1.0)
        assert self.status(run) == "finished:completed", self.log()

    def rounds(self) -> int:
        """Return how many rounds are committed."""
        lines = self.server / "rounds.jsonl"
        return len(lines.read_text().splitlines()) if lines.exists() else 0

    def until(self, happened: Callable[[], bool], *, seconds: float, every: float = 0.5) -> None:
        """Wait for something, not forever."""
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, self.log()
            time.sleep(every)

    def order_death(self, name: str, *, kind: str = "train") -> None:
        """Let a node die between the commit and the reply of its next update, or before another kind of reply."""
        order = self.federation.folder / name / "die-after-commit"
        order.write_text(f"{kind} {self.federation.processes[name].pid}")

    def order_attacks(self, name: str, *attacks: str, kind: str = "train") -> None:
        """Let a node spoil its next updates, or other replies, each with one of these attacks."""
        (self.federation.folder / name / f"attacks-{kind}").write_text("\n".join(attacks))

    def lapse(self, *names: str) -> None:
        """Let the SuperLink take dead nodes for offline now: it would wait a minute for their next heartbeat."""
        keys = self.federation.folder / "keys"
        with closing(sqlite3.connect(self.federation.folder / "superlink.db", timeout=60.0)) as database, database:
            for name in names:
                number = int(json.loads((keys / f"{name}.registered").read_text())["node-id"])
                signed = number - 2**64 if number >= 2**63 else number  # as the database keeps it
                done = database.execute("UPDATE node SET online_until = 0 WHERE node_id = ?", (signed,))
                assert done.rowcount == 1, f"{name} is not in the SuperLink's database"

    def kill_server_app(self) -> bool:
        """Kill the ServerApp, and return whether one was there."""
        members = family(self.federation.processes["superlink"])
        apps = [member for member in members if "flwr-serverapp" in command_line(member)]
        for app in apps:
            os.kill(app.pid, signal.SIGKILL)
        return bool(apps)

    def stop(self) -> None:
        """End the runs that go on, such as one without its ServerApp: Flower would take a minute to notice that."""
        for run in self.unfinished():
            self._flwr("stop", str(run), "lab", "--format", "json")

    def assert_books_agree(self) -> None:
        """Compare the server's checkpoint and the nodes' disks with the simulation of what was applied."""
        config = run_config(**{**self.changes, "state-dir": str(self.server.parents[1])})
        strategy = strategy_of(config)
        try:
            assert_books_agree(
                strategy, config, lambda client: self.federation.folder / f"node-{client}" / "fedadmm-state"
            )
        finally:
            strategy.close()

    def log(self) -> str:
        """Return the end of all logs, for a test that fails."""
        return "\n".join(
            f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}"
            for file in sorted(self.federation.folder.glob("*.log"))
        )

    def _flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            ["flwr", *arguments],
            env=self.federation.command_environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def command_line(process: Started) -> str:
    """Return the command that a process runs, with nothing cut off."""
    said = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(process.pid)], capture_output=True, text=True, check=False
    )
    return said.stdout
