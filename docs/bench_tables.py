"""The tables of what was timed, from results/bench/, which `make bench` makes.

<!-- bench NAME NAME --> joins the rows of these files; below them stands how, when and where each was measured.
"""

import json
import re
from pathlib import Path
from textwrap import fill
from typing import Any

from fedadmm.report.table import markdown

RESULTS = Path(__file__).parent.parent / "results" / "bench"
BLOCK = re.compile(r"(<!-- bench ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with its blocks made again."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{block(found[2].split())}\n{found[3]}", text)


def block(names: list[str]) -> str:
    """Return the rows of some files as one table, and the origin of each."""
    files = [RESULTS / f"{name}.json" for name in names]
    if missing := [file.stem for file in files if not file.exists()]:
        return f'Not measured yet: `make bench BENCH="{" ".join(missing)}"`.\n'
    records = [json.loads(file.read_text()) for file in files]
    rows = [row for record in records for row in record["rows"]]
    origins = "\n".join(fill(f"- {_origin(record)}", 130, subsequent_indent="  ") for record in records)
    return f"{markdown(rows)}\n{origins}\n"


def _origin(record: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    load = "" if record["load before"] is None else f", load {record['load before']} before"
    note = f" {record['note']}" if "note" in record else ""
    place = f"{record['day']}, commit {record['commit']}, {record['machine']}{load}"
    return f"`{record['command']}`: {place}; {versions}.{note}"
