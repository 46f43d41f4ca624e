"""The command that makes the table of docs/CONVEX.md."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fedadmm.studies.convex import DATA, Cell, fill
from fedadmm.studies.convex_table import broken_promises, rows, theory_rows

console = Console()


def convex_command(
    results: Annotated[Path, typer.Option(help="File of the results; what is there is not run again.")] = Path(
        "results/convex.json"
    ),
) -> None:
    """Near the optimum of quadratics with every method: rounds to distance 1e-3 and 1e-6, and slopes beside theory.

    Takes some minutes; it can be stopped, and the same command goes on.
    """
    torch.set_num_threads(1)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)

        def on_cell(cell: Cell, number: int, total: int) -> None:
            progress.update(task, description=cell.key, completed=number, total=total)

        found = fill(results, on_cell=on_cell)
    for data in DATA:
        for lines, title in (
            (rows(found, data=data), f"{data}: rounds to a distance of 1e-3 and of 1e-6"),
            (theory_rows(found, data=data), f"{data}: powers of ten in a round"),
        ):
            table = Table(*lines[0], title=title, title_justify="left")
            for line in lines:
                table.add_row(*line.values())
            console.print(table)
    for key in broken_promises(found):
        console.print(f"Flatter than promised: {key}")
