"""The table of a comparison: rounds and bytes to the target, final and best accuracy."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from fedadmm.report.runs import RunData


def format_bytes(number: float) -> str:
    """Return a number of bytes with a unit, such as 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def comparison_rows(runs: Sequence[RunData]) -> list[dict[str, str]]:
    """Return a row per run, as text: rounds and upload to the target, final and best accuracy.

    Refused clients and the status are told only where there is something to tell.
    """
    rows = [_row(run) for run in runs]
    for key, usual in (("refused", "0"), ("status", "finished")):
        if all(row[key] == usual for row in rows):
            for row in rows:
                del row[key]
    return rows


def _row(run: RunData) -> dict[str, str]:
    arrival = run.arrival
    known = run.accuracy[~np.isnan(run.accuracy)]
    never = f"{len(run.rounds)}+"
    return {
        "method": run.label,
        "rounds": never if arrival is None else str(arrival),
        "upload": "-" if arrival is None else format_bytes(run.total("bytes_up")[arrival - 1]),
        "final": f"{known[-1]:.3f}" if len(known) else "-",
        "best": f"{known.max():.3f}" if len(known) else "-",
        "refused": str(sum(len(r["refused"]) for r in run.rounds)),
        "status": run.status,
    }


def comparison_markdown(runs: Sequence[RunData]) -> str:
    """Return the comparison as a Markdown table."""
    rows = comparison_rows(runs)
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def comparison_table(runs: Sequence[RunData], *, title: str) -> Table:
    """Return the comparison for a terminal."""
    rows = comparison_rows(runs)
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(
            column, justify="left" if column in ("method", "status") else "right", no_wrap=column == "method"
        )
    for row in rows:
        table.add_row(*row.values())
    return table
