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

import torch
import typer
from bare import BareLoop
from rich.console import Console
from rich.table import Table
from workloads import WORKLOADS

HERE = Path(__file__).parent


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
        timeout=3600,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if "SECONDS " in line]
    if not lines:
        sys.exit(f"{peer} printed no times:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}")
    times: list[float] = json.loads(lines[-1].split("SECONDS ")[1])
    return times


def main(
    environments: Annotated[Path, typer.Option(help="Folder with an environment for each peer.")] = HERE,
    peers: Annotated[str, typer.Option(help="Comma-separated.")] = "pfl,flower",
    workloads: Annotated[str, typer.Option(help="Comma-separated.")] = "silo,crowd,tiny",
    rounds: Annotated[int, typer.Option(help="Measured rounds of each peer.")] = 5,
) -> None:
    """Print the median seconds of a round, and its ratio to the bare loop's."""
    table = Table(title=f"FedAvg round of a peer / bare loop, torch {torch.__version__}", title_justify="left")
    for column in ("workload", "peer", "bare loop [s]", "round [s]", "ratio", "from to"):
        table.add_column(column, no_wrap=True)
    for name in workloads.split(","):
        bare = BareLoop.of(WORKLOADS[name])
        for peer in peers.split(","):
            bares = [bare.seconds(epochs=1) for _ in range(rounds)]
            theirs = peer_seconds(peer, environments / f".venv-{peer}", name, rounds)
            bares += [bare.seconds(epochs=1) for _ in range(rounds)]
            yardstick = statistics.median(bares)
            ratios = [seconds / yardstick for seconds in theirs]
            row = (
                name, peer, f"{yardstick:.2f}", f"{statistics.median(theirs):.2f}",
                f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}",
            )  # fmt: skip
            Console(stderr=True).print(*row, highlight=False)
            table.add_row(*row)
        bare.close()
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
