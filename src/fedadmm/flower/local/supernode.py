"""Flower's SuperNode with a SuperExec of ours beside it: docs/DEPLOY.md, "What a round costs"."""

import argparse
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence

from fedadmm.core.errors import InputError
from fedadmm.flower.local.processes import search_path

POLL = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25"}  # seconds, where nothing else is asked for: it asks this machine


def superexec_command(arguments: Sequence[str], *, parent: int) -> list[str]:
    """Return the command of the SuperExec for a SuperNode with these arguments: it ends with that process."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="9094")
    parser.add_argument("--ssl-ca-certfile", default=None)
    parser.add_argument("--isolation", default=None)
    known, _ = parser.parse_known_args(arguments)
    if known.isolation is not None:
        raise InputError(f"--isolation {known.isolation} is decided here; leave it out, or use flower-supernode")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(known.host, known.host)
    address = f"[{host}]:{known.port}" if ":" in host else f"{host}:{known.port}"
    transport = ["--insecure"] if known.ssl_ca_certfile is None else ["--root-certificates", known.ssl_ca_certfile]
    own = ["--runtime-api-address", address, *transport, "--parent-pid", str(parent)]
    if "--allow-runtime-dependency-installation" in arguments:
        own.append("--allow-runtime-dependency-installation")
    return [sys.executable, "-m", "fedadmm.flower.local.superexec", *own]


def check_port(command: Sequence[str]) -> None:
    """Refuse a port that is in use: the SuperNode would end, and its SuperExec would serve the other process there."""
    host, _, port = command[command.index("--runtime-api-address") + 1].rpartition(":")
    with socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET) as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what an ended one has left does not count
        try:
            free.bind((host.strip("[]"), int(port)))
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(
                f"port {port} of {host} cannot be used: {error}; give each node of a machine a --port of its own"
            ) from error


def run_supernode(arguments: Sequence[str]) -> None:
    """Start the SuperExec, and let this process be the SuperNode."""
    environment = {**POLL, **os.environ, "PATH": search_path()}
    found = shutil.which("flower-supernode", path=environment["PATH"])
    if found is None:
        raise InputError('there is no command flower-supernode; pip install "fedadmm[flower]"')
    if not {"--help", "--version", "-h", "-V"} & set(arguments):
        command = superexec_command(arguments, parent=os.getpid())
        check_port(command)
        subprocess.Popen(command, env=environment)
        arguments = [*arguments, "--isolation", "process"]
    os.execve(found, [found, *arguments], environment)
