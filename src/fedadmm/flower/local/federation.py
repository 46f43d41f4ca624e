"""The federation on this machine: a folder with keys, certificates, logs and the processes that run."""

import json
import shlex
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedadmm.core.errors import InputError
from fedadmm.core.files import private_files, write_whole
from fedadmm.flower.local.processes import Shell, Started, Tell, end

PACKAGED_APP = Path(__file__).parent / "app"
APP_IN_THE_SOURCES = Path(__file__).parents[4] / "examples" / "flower-fedadmm"  # of an editable installation
NODES_OF_APP = 4  # that the example app is set up for
LINK = "lab"  # the name of the connection in Flower's configuration
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-nodes")
DAYS, DAYS_OF_CA = "365", "3650"
STARTING = 60.0  # seconds for a SuperLink, and for nodes to connect
# Flower takes a node that was killed for connected until its heartbeat has lapsed, and refuses its key until then.
LAPSING = 90.0
CHANGES = "changes.json"  # of each app, with which it was run
ONCE = ("name", "num-server-rounds", "verify", "rollback-to", "rollback-force", "accept-code")  # of which none is kept
FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",  # seconds: on one machine asking for work costs nothing
}


class LocalFederation:
    """A SuperLink and SuperNodes on loopback, whose processes outlive the command that started them."""

    supernode: tuple[str, ...] = ("fedadmm", "federation", "supernode")  # what a node runs

    def __init__(self, folder: Path, *, tell: Tell = lambda line: None) -> None:
        self.folder = folder.absolute()
        self.environment = {"FLWR_HOME": str(self.folder / "flwr"), **FLOWER_ENVIRONMENT}
        self._tell = tell
        self.shell = Shell(self.folder, environment=self.environment, tell=tell)

    @property
    def command_environment(self) -> dict[str, str]:
        """The environment in which `flwr` finds this federation, and what it starts finds us."""
        return self.shell.environment

    @property
    def processes(self) -> dict[str, Started]:
        """All processes that were started, by name: superlink, node-0, node-1, ..."""
        file = self.folder / "processes.json"
        written = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return {name: Started(*entry) for name, entry in written.items()}

    @property
    def superlink_address(self) -> str:
        """Where nodes find the SuperLink."""
        return f"127.0.0.1:{json.loads((self.folder / 'ports.json').read_text(encoding='utf-8'))['superlink']}"

    @property
    def server_folders(self) -> list[Path]:
        """The folder of every server that has run here, one for each name of a federation."""
        return sorted(path.parent for path in self.folder.glob("server/*/*/server/rounds.jsonl"))

    def log(self, name: str) -> Path:
        """Return the log of a process."""
        return self.folder / f"{name}.log"

    @private_files()
    def up(self, *, num_nodes: int) -> None:
        """Start what is not running, and wait until all nodes are connected."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "ports.json").exists():
            self._make(num_nodes)
        ports = json.loads((self.folder / "ports.json").read_text(encoding="utf-8"))
        if len(ports) - 1 != num_nodes:
            raise InputError(
                f"{self.folder} is a federation of {len(ports) - 1} nodes, and {num_nodes} are asked for; "
                "remove the folder, or give another --folder"
            )
        running = {name for name, process in self.processes.items() if process.alive}
        if "superlink" not in running:
            self._start_superlink(ports["superlink"])
        for number in range(num_nodes):
            self._register(number)
            if f"node-{number}" not in running:
                self._start_node(number, ports, num_nodes)
        self._wait_for_nodes(ports, num_nodes)

    def kill(self, name: str) -> None:
        """End a process and all that it started at once, as a machine that loses its power does."""
        if name not in self.processes:
            raise InputError(f"there is no {name!r} here; use one of {', '.join(self.processes) or 'none'}")
        self._tell(f"kill -9 {self.processes[name].pid}")
        end([self.processes[name]], signals=[signal.SIGKILL])

    def down(self, *, patient: bool = True) -> None:
        """End all processes, at once if we are not patient; keys, state and logs stay."""
        processes = self.processes
        signals = [signal.SIGTERM, signal.SIGKILL] if patient else [signal.SIGKILL]
        link = [processes.pop("superlink")] if "superlink" in processes else []
        for part in (list(processes.values()), link):
            for process in part:
                self._tell(f"kill {process.pid}")
            end(part, signals=signals)

    def online(self) -> int:
        """Return how many nodes the SuperLink holds for connected."""
        listed = json.loads(self.shell.run("flwr", "supernode", "list", LINK, "--format", "json"))
        return sum(node["status"] == "online" for node in listed["nodes"])

    def run_command(self, app: Path, *, num_nodes: int) -> str:
        """Return the command that runs an app on this federation."""
        command = f"fedadmm federation run {app} --folder {shlex.quote(str(self.folder))}"
        if num_nodes == NODES_OF_APP:
            return command
        return f"{command} --set num-clients={num_nodes} --set min-available-nodes={num_nodes}"

    def remembered(self, app: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the other changes with which an app last finished here, under the name that these give it."""
        found = self._changes().get(_called(app, changes), {})
        return {key: value for key, value in found.items() if key not in changes}

    def remember(self, app: Path, changes: Mapping[str, Any]) -> None:
        """Keep the changes with which an app has finished, but for those that are meant once."""
        lasting = {key: value for key, value in changes.items() if key not in ONCE}
        write_whole(self.folder / CHANGES, json.dumps(self._changes() | {_called(app, changes): lasting}, indent=1))

    def _changes(self) -> dict[str, dict[str, Any]]:
        file = self.folder / CHANGES
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def _make(self, num_nodes: int) -> None:
        """Make certificates, node keys and Flower's configuration, and choose ports that are free."""
        run = self.shell.run
        (self.folder / "keys").mkdir(exist_ok=True)
        run("openssl", "req", "-x509", *CURVE, "-days", DAYS_OF_CA, "-subj", "/CN=fedadmm CA",
            "-keyout", "keys/ca.key", "-out", "keys/ca.crt")  # fmt: skip
        run("openssl", "req", *CURVE, "-subj", "/CN=localhost", "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "keys/server.key",
            "-out", "keys/server.csr")  # fmt: skip
        self.renew()
        for number in range(num_nodes):
            self.make_key(f"node-{number}")
        names = ["superlink", *(f"node-{number}" for number in range(num_nodes))]
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        (self.folder / "flwr").mkdir(exist_ok=True)
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "{LINK}"\n\n[superlink.{LINK}]\naddress = "127.0.0.1:{ports["superlink"]}"\n'
            f'root-certificates = "{self.folder / "keys/ca.crt"}"\n'
        )
        write_whole(self.folder / "ports.json", json.dumps(ports))

    @property
    def certificates(self) -> list[Path]:
        """The certificates of the authority and of the SuperLink."""
        return [self.folder / "keys" / name for name in ("ca.crt", "server.pem")]

    def renew(self) -> None:
        """Make the SuperLink's certificate, or make it anew; a running SuperLink takes it within some seconds."""
        self.shell.run(
            "openssl", "x509", "-req", "-in", "keys/server.csr", "-CA", "keys/ca.crt", "-CAkey", "keys/ca.key",
            "-CAcreateserial", "-copy_extensions", "copy", "-days", DAYS, "-out", "keys/server.pem",
        )  # fmt: skip

    def rotate(self, name: str) -> None:
        """End a node, take its key from it, and make another, with which `up` starts it again as the same client."""
        marker = self.folder / "keys" / f"{name}.registered"
        if not marker.exists():
            raise InputError(f"there is no node {name!r} here with a key; use one such as node-0")
        self.kill(name)
        self.shell.run(
            "flwr", "supernode", "unregister", str(json.loads(marker.read_text(encoding="utf-8"))["node-id"]), LINK
        )
        for path in (marker, self.folder / "keys" / name, self.folder / "keys" / f"{name}.pub"):
            path.unlink(missing_ok=True)
        self.make_key(name)

    def make_key(self, name: str) -> None:
        """Make a node's key; it is refused until it is registered."""
        self.shell.run("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "", "-f", f"keys/{name}")

    def _register(self, number: int) -> None:
        marker = self.folder / "keys" / f"node-{number}.registered"
        if not marker.exists():
            key = f"keys/node-{number}.pub"
            marker.write_text(self.shell.run("flwr", "supernode", "register", key, LINK, "--format", "json"))

    def _start_superlink(self, port: int) -> None:
        """Start the SuperLink, and wait until it listens."""
        keys = self.folder / "keys"
        process = self.shell.start(
            "fedadmm", "federation", "superlink", "--host", "127.0.0.1", "--port", str(port),
            "--ssl-ca-certfile", f"{keys}/ca.crt", "--ssl-certfile", f"{keys}/server.pem",
            "--ssl-keyfile", f"{keys}/server.key", "--enable-supernode-auth",
            "--disable-runtime-dependency-installation", "--database", f"{self.folder}/superlink.db",
            folder=self.folder / "server", log=self.log("superlink"),
        )  # fmt: skip
        self._write("superlink", process)
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline and process.alive:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        raise InputError(f"the SuperLink did not start; see {self.log('superlink')}")

    def _start_node(self, number: int, ports: dict[str, int], num_nodes: int) -> None:
        name, config = f"node-{number}", f"partition-id={number} num-partitions={num_nodes}"
        self._write(name, self.start_node(name, port=ports[name], config=config))

    def start_node(self, name: str, *, port: int, config: str) -> Started:
        """Start a SuperNode with its key, in a folder of its own."""
        return self.shell.start(
            *self.supernode, "--superlink", self.superlink_address,
            "--root-certificates", str(self.folder / "keys/ca.crt"),
            "--auth-supernode-private-key", str(self.folder / "keys" / name),
            "--host", "127.0.0.1", "--port", str(port), "--node-config", config,
            folder=self.folder / name, log=self.log(name),
        )  # fmt: skip

    def _wait_for_nodes(self, ports: dict[str, int], num_nodes: int) -> None:
        """Wait until every node has connected; one that was refused, as its old self has not lapsed, is tried again."""
        deadline = time.monotonic() + LAPSING + STARTING
        while time.monotonic() < deadline:
            processes = self.processes
            ended = [n for n in range(num_nodes) if not processes[f"node-{n}"].alive]
            if not ended and all(self._has_connected(f"node-{n}") for n in range(num_nodes)):
                return
            time.sleep(2.0)
            for number in ended:
                self._start_node(number, ports, num_nodes)
        raise InputError(f"not all {num_nodes} nodes have connected; see the logs in {self.folder}")

    def _has_connected(self, name: str) -> bool:
        """Return whether a node's log says so since its last start: a SuperLink takes a dead node for alive."""
        text = self.log(name).read_text(errors="replace")
        return "SuperNode ID" in f"\n{text}".rpartition("\n$ ")[2]

    def _write(self, name: str, process: Started) -> None:
        write_whole(self.folder / "processes.json", json.dumps({**self.processes, name: process}, indent=1))


def _called(app: Path, changes: Mapping[str, Any]) -> str:
    """Return what tells the federations of an app apart."""
    return f"{app.absolute()} {changes.get('name', '')}".strip()


def free_ports(number: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def copy_app(folder: Path) -> None:
    """Copy the example app, which comes with the package, to a folder that is not there yet."""
    source = PACKAGED_APP if PACKAGED_APP.exists() else APP_IN_THE_SOURCES
    try:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except FileExistsError:
        raise InputError(f"{folder} is there already; give another folder") from None
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error}; give another folder") from error
