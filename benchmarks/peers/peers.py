"""Seconds per FedAvg round of pfl and of Flower's simulation, as ratios to the bare loop: `make bench-peers`.

Each peer runs in an environment of its own; the bare loop runs before and after each of its runs.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from bare import BareLoop
from recording import Record, show
from rich.console import Console
from workloads import WORKLOADS

HERE = Path(__file__).parent
BARE = 3  # rounds of the bare loop before each run of a peer, and after the last


def command(peer: str, environment: Path, name: str, rounds: int) -> list[str]:
    """Return the command that runs a peer."""
    script, arguments = str(HERE / f"{peer}_rounds.py"), [name, str(rounds)]
    if peer == "pfl":
        torchrun = str(environment / "bin" / "torchrun")
        return [torchrun, "--standalone", f"--nproc-per-node={os.cpu_count()}", script, *arguments]
    return [str(environment / "bin" / "python"), script, *arguments]


def peer_seconds(peer: str, environment: Path, name: str, rounds: int) -> list[float]:
    """Run a peer and return the seconds of its rounds, the first one left out."""
    quiet = {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    ended = subprocess.run(
        command(peer, environment, name, rounds),
        env=os.environ | quiet | {"PYTHONPATH": str(HERE.parent)},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if "SECONDS " in line]
    if not lines:
        sys.exit(f"{peer} printed no times:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}")
    times: list[float] = json.loads(lines[-1].split("SECONDS ")[1])
    return times


def version(peer: str, environments: Path) -> str:
    """Return the release of a peer that its environment has."""
    package = {"flower": "flwr"}.get(peer, peer)
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    python = environments / f".venv-{peer}" / "bin" / "python"
    return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def main(
    environments: Annotated[Path, typer.Option(help="Folder with an environment for each peer.")] = HERE,
    peers: Annotated[str, typer.Option(help="Comma-separated.")] = "pfl,flower",
    workloads: Annotated[str, typer.Option(help="Comma-separated.")] = "silo,crowd,tiny",
    rounds: Annotated[int, typer.Option(help="Measured rounds of each peer.")] = 5,
    record: Record = None,
) -> None:
    """Print the median seconds of a round, and its ratio to the bare loop's."""
    rows = []
    for name in workloads.split(","):
        bare = BareLoop.of(WORKLOADS[name])
        before = [bare.seconds(epochs=1) for _ in range(BARE)]
        for peer in peers.split(","):
            theirs = peer_seconds(peer, environments / f".venv-{peer}", name, rounds)
            after = [bare.seconds(epochs=1) for _ in range(BARE)]
            yardstick, before = statistics.median([*before, *after]), after
            ratios = [seconds / yardstick for seconds in theirs]
            row = {"workload": name, "peer": f"{peer} {version(peer, environments)}"}
            row |= {"bare loop [s]": f"{yardstick:.2f}", "round [s]": f"{statistics.median(theirs):.2f}"}
            row |= {"ratio": f"{statistics.median(ratios):.2f}", "from to": f"{min(ratios):.2f} to {max(ratios):.2f}"}
            Console(stderr=True).print(*row.values(), highlight=False)
            rows.append(row)
        bare.close()
    show(rows, title="FedAvg round of a peer / bare loop", record=record)


if __name__ == "__main__":
    typer.run(main)
