"""The command that makes the table of docs/CONVEX.md."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fedadmm.cli.console import err, say, show_rows


def convex_command(
    results: Annotated[Path, typer.Option(help="File of the results; what is there is not run again.")] = Path(
        "results/convex.json"
    ),
) -> None:
    """Compare all methods near the optimum of quadratics: rounds to distance 1e-3 and 1e-6, and slopes.

    Takes some minutes; it can be stopped, and the same command goes on.
    """
    import torch

    from fedadmm.studies.convex import DATA, Cell, broken_promises, fill, rows, theory_rows

    torch.set_num_threads(1)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=err) as progress:
        task = progress.add_task("", total=None)

        def on_cell(cell: Cell, number: int, total: int) -> None:
            progress.update(task, description=cell.key, completed=number, total=total)
            if not err.is_terminal:  # where a bar is not drawn
                say(f"{number + 1} of {total}: {cell.key}", to=err)

        try:
            found = fill(results, on_cell=on_cell)
        except KeyboardInterrupt:
            say(f"Stopped; what was found is in {results}, and the same command goes on from there")
            raise typer.Exit(130) from None
    for data in DATA:
        show_rows(rows(found, data=data), title=f"{data}: rounds to a distance of 1e-3 and of 1e-6")
        show_rows(theory_rows(found, data=data), title=f"{data}: powers of ten in a round")
    for key in broken_promises(found):
        say(f"Flatter than promised: {key}")
