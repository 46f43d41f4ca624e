"""The guide of docs/DEPLOY.md for three machines, run as it stands there, each machine in a network namespace.

Nothing of it is outside: the wires, the bridge and all addresses (192.0.2.0/24, which is for documentation) are within
the namespaces, which are deleted in the end with all that runs in them.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_grid import assert_books_agree, run_config, strategy_of

from fedadmm.flower.local.processes import search_path

pytestmark = [pytest.mark.deployment, pytest.mark.slow]
PAGE = Path(__file__).parents[2] / "docs" / "DEPLOY.md"
NAME = "link.example.org"
ADDRESSES = {"link": "192.0.2.1", "node-0": "192.0.2.10", "node-1": "192.0.2.11"}
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def commands(title: str) -> list[str]:
    """Return the blocks of a part of the page, each with a first line that says where it is run."""
    part = PAGE.read_text().partition(title)[2]
    part = re.split(r"\n## |\n\*\*|\n\d\. ", part, maxsplit=1)[0]
    blocks = re.findall(r"(?:^ {7}.*\n)+", part, flags=re.MULTILINE)
    return [re.sub(r"^ {7}", "", block, flags=re.MULTILINE) for block in blocks]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)


class Machine:
    """A namespace with a folder, in which commands are run."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = f"fedadmm-{os.getpid()}-{name}", folder / name
        self.folder.mkdir()
        self.environment = os.environ | QUIET | {"PATH": search_path(), "FLWR_HOME": str(self.folder / "flwr")}
        self.log = self.folder / "log"

    def run(self, block: str, *, folder: Path | None = None, code: int = 0) -> str:
        """Run a block of commands to its end, and return what it printed."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, "bash", "-ec", block],
            cwd=folder or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, block: str) -> None:
        """Start a command that goes on."""
        with self.log.open("ab") as log:
            subprocess.Popen(
                ["ip", "netns", "exec", self.name, "bash", "-ec", f"exec {block.partition(chr(10))[2]}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ).returncode = 0  # it is ended by its id

    def end(self) -> None:
        """End all that runs in the namespace."""
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True).stdout
        for pid in map(int, found.split()):
            os.kill(pid, signal.SIGKILL)

    def until_it_says(self, words: str, *, seconds: float = 120) -> None:
        """Wait until the log has these words."""
        deadline = time.monotonic() + seconds
        while not self.log.exists() or words not in self.log.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{self.name} does not say {words!r}:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.5)


@contextmanager
def machines(folder: Path) -> Iterator[dict[str, Machine]]:
    """Give three machines that reach each other, and the first by its name."""
    found = {name: Machine(name, folder) for name in ADDRESSES}
    link, hosts = found["link"], Path("/etc/netns")
    had_hosts = hosts.exists()
    try:
        for name, machine in found.items():
            ip("netns", "add", machine.name)
            ip("-n", machine.name, "link", "set", "lo", "up")
            (hosts / machine.name).mkdir(parents=True)
            (hosts / machine.name / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESSES['link']} {NAME}\n")
            if machine is link:
                ip("-n", link.name, "link", "add", "wires", "type", "bridge")
                ip("-n", link.name, "link", "set", "wires", "up")
                ip("-n", link.name, "address", "add", f"{ADDRESSES[name]}/24", "dev", "wires")
            else:
                ip("-n", link.name, "link", "add", name, "type", "veth", "peer", "name", "wire", "netns", machine.name)
                ip("-n", link.name, "link", "set", name, "master", "wires", "up")
                ip("-n", machine.name, "address", "add", f"{ADDRESSES[name]}/24", "dev", "wire")
                ip("-n", machine.name, "link", "set", "wire", "up")
        yield found
    finally:
        made = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
        for machine in found.values():
            if machine.name in made:
                machine.end()
                ip("netns", "delete", machine.name)
            shutil.rmtree(hosts / machine.name, ignore_errors=True)
        if not had_hosts and hosts.exists():
            hosts.rmdir()


@pytest.fixture
def net(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Return the machines, or skip the test where namespaces cannot be made."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the command ip")
    name = f"fedadmm-{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"network namespaces cannot be made here: {tried.stderr.strip()}")
    ip("netns", "delete", name)
    with machines(tmp_path) as made:
        yield made


def refuses(machine: Machine, address: str, port: int) -> bool:
    """Return whether a machine cannot connect to a port of another."""
    probe = f"import socket; print(socket.socket().connect_ex(({address!r}, {port})))"
    return machine.run(f"python3 -c {probe!r}").strip() != "0"


def set_up(net: dict[str, Machine], you: Path, here: Callable[[str, Machine], str]) -> None:
    """Steps 1 to 4."""
    link, nodes = net["link"], [net["node-0"], net["node-1"]]
    (certificates,) = commands("**Certificates.**")
    link.run(certificates, folder=you)
    for name in ("ca.crt", "server.pem", "server.key"):
        shutil.copy(you / name, link.folder)
    (superlink,) = commands("**SuperLink.**")
    link.start(superlink)
    link.until_it_says("Uvicorn running on")
    on_each_node, register = commands("**Keys.** Each node")
    # As before an authority ends: the nodes trust another one too.
    (you / "other").mkdir()
    link.run(certificates, folder=you / "other")
    both = (you / "other" / "ca.crt").read_text() + (you / "ca.crt").read_text()
    for number, node in enumerate(nodes):
        (node.folder / "ca.crt").write_text(both)
        node.run(on_each_node)
        shutil.copy(node.folder / "node.pub", you / f"node-{number}.pub")
    link.run(register, folder=you)
    (start,) = commands("**Nodes.**")
    for number, node in enumerate(nodes):
        node.start(here(start, node).replace("client-id=0", f"client-id={number}"))
    for node in nodes:
        node.until_it_says("SuperNode ID")


def test_the_guide_for_three_machines_leads_to_a_run_and_through_what_may_happen(
    net: dict[str, Machine], tmp_path: Path
) -> None:
    link, you = net["link"], tmp_path / "you"
    you.mkdir()

    def here(block: str, machine: Machine) -> str:
        assert "/var/lib/fedadmm" in block
        return block.replace("/var/lib/fedadmm", str(machine.folder / "state"))

    set_up(net, you, here)
    assert not refuses(net["node-0"], ADDRESSES["link"], 8000)
    assert refuses(link, ADDRESSES["node-0"], 9094)  # no port of a node is open
    (run,) = commands("**Run.**")
    said = link.run(run, folder=you)
    assert "Round 5 applies 2 of 2" in said
    # Theta and the nodes' states are, to the bit, the simulator's.
    config = run_config(num_clients=2, min_available_nodes=2, state_dir=str(link.folder / "fedadmm-state"))
    strategy = strategy_of(config)
    assert_books_agree(strategy, config, lambda client: net[f"node-{client}"].folder / "state")
    strategy.close()

    # One machine is lost for good, and another takes its place.
    node, (start,) = net["node-1"], commands("**Nodes.**")
    more = run.replace("fedadmm federation app my-app\n", "").rstrip() + " --set num-server-rounds="

    def change_key(key: str, change: str) -> None:
        """Let node 1 make another key, and register it in the place of the one before."""
        node.log.unlink()
        node.run(key)
        shutil.copy(node.folder / "node.pub", you / "new.pub")
        status = link.run("fedadmm federation status --server fedadmm-state/digits/server")
        (number,) = re.findall(r"^ *1 +(\d+)", status, flags=re.MULTILINE)
        link.run(change.replace("NODE_ID", number), folder=you)

    def play_on(rounds: int) -> None:
        """Start node 1, and play up to a round, which both nodes take part in."""
        node.start(here(start, node).replace("client-id=0", "client-id=1"))
        node.until_it_says("SuperNode ID")
        assert f"Round {rounds} applies 2 of 2" in link.run(f"{more}{rounds}\n", folder=you)
        status = link.run("fedadmm federation status --server fedadmm-state/digits/server")
        assert status.count(f"round {rounds}") == 2

    node.end()
    shutil.rmtree(node.folder / "state")
    (node.folder / "node").unlink()
    key, change, rebind = commands("**A machine is lost for good.**")
    change_key(key, change)
    link.run(rebind)
    play_on(6)

    # A key is rotated, and the client goes on with its state.
    node.end()
    key, change = commands("**A key is rotated.**")
    change_key(key, change)
    assert (node.folder / "node.old").exists()
    play_on(7)

    # The SuperLink's machine is lost, too: another one has a copy, the certificates and the nodes' public keys.
    link.run(f"fedadmm federation backup fedadmm-state {you}/monday")
    for machine in net.values():
        machine.end()
        machine.log.unlink()
    for path in link.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("ca.crt", "server.pem", "server.key"):
        shutil.copy(you / name, link.folder)
    (restore,) = commands("**The SuperLink's machine is lost for good.**")
    link.run(restore.replace("/backup/monday", str(you / "monday")))
    (superlink,) = commands("**SuperLink.**")
    link.start(superlink)
    link.until_it_says("Uvicorn running on")
    shutil.copy(you / "new.pub", you / "node-1.pub")
    link.run(commands("**Keys.** Each node")[1], folder=you)
    for number in range(2):
        machine = net[f"node-{number}"]
        machine.start(here(start, machine).replace("client-id=0", f"client-id={number}"))
    for number in range(2):
        net[f"node-{number}"].until_it_says("SuperNode ID")
    asked = more.partition("my-app lab")[2]
    said = link.run(f"export FLWR_HOME=$PWD/flwr\nfedadmm federation verify my-app lab{asked}7", folder=you)
    assert said.count("is in step") == 2, said
    assert "Round 8 applies 2 of 2" in link.run(f"{more}8", folder=you)
