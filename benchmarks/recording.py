"""How a benchmark says what it found: a table on the terminal, and with --record a file from which pages are made.

A file of results/bench/ has the command, the day, the commit, the machine, the versions, and the rows as they were
printed. docs/build.py makes the tables of the pages from it.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]

LOAD = os.getloadavg()[0]  # processes that wanted a core in the minute before anything was measured
PACKAGES = ("torch", "fedadmm")

Record = Annotated[Path | None, typer.Option(help="Also write the table to a file, results/bench/NAME.json.")]


def against(ratio: float | None, target: float | None) -> dict[str, str]:
    """Return the cells of a target beside a ratio, and whether it is met; empty ones where there is none."""
    if ratio is None or target is None:
        return {"target": "", "met": ""}
    return {"target": f"{target:.2f}", "met": "yes" if ratio <= target else "no"}


def show(rows: Sequence[dict[str, str]], *, title: str, record: Path | None) -> None:
    """Print a table, and write it down where a file is named."""
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    Console(width=180).print(table)
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(_record(rows), indent=1, ensure_ascii=False) + "\n")


def _record(rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    return {
        "command": _command(),
        "day": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "machine": _machine(),
        "load before": round(LOAD, 1),
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}},
        "rows": list(rows),
    }


def _command() -> str:
    """Return the command as one types it in the project's folder, without --record and its file."""
    given = sys.argv[1:]
    if "--record" in given:
        place = given.index("--record")
        given = given[:place] + given[place + 2 :]
    return shlex.join(["python", str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *given])


def _commit() -> str:
    """Return the commit that was measured, with a plus if the package differs from it."""
    head, changes = (
        subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        for arguments in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "src", "benchmarks"])
    )
    return head + ("+" if changes else "")


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else platform.machine()}, {memory:.0f} GB"
