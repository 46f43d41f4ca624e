"""The table of `make demo`, and its picture: every variant of the preset `digits`, to its last round.

python benchmarks/demo.py --picture docs/digits.png
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from recording import Record, show

import fedadmm
from fedadmm.report.figures import save_figure


def main(
    picture: Annotated[Path | None, typer.Option(help="Also draw the curves into a file.")] = None,
    record: Record = None,
) -> None:
    """Print a row for each method, in the order in which they arrived."""
    with tempfile.TemporaryDirectory() as folder:
        comparison = fedadmm.compare("digits", out=folder, progress=False)
        if picture is not None:
            save_figure(comparison.plot(width=12), picture)
        rows = comparison.rows
    show(rows, title=comparison.title, record=record)


if __name__ == "__main__":
    typer.run(main)
