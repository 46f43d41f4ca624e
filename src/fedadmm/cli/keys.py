"""The command that explains the keys of an experiment."""

from typing import Annotated

import typer
from rich.markup import escape

from fedadmm.cli.console import say, show_table
from fedadmm.config.keys import tables, tables_named


def keys_command(
    table: Annotated[
        str,
        typer.Argument(help="A table or a key, such as local or local.epochs, or an algorithm.", show_default="all"),
    ] = "",
) -> None:
    """Explain the keys of an experiment: their types, defaults and meaning, each with an example.

    Example: fedadmm keys local
    """
    for shown in tables_named(table) if table else tables():
        say(f"[{shown.name}]  {shown.about}" if shown.name else shown.about)
        rows = [
            (f"{key.name} = {key.example}", key.default or "-", f"{key.meaning} ({key.type})") for key in shown.keys
        ]
        if rows:
            show_table(None, ("example", "default", "meaning"), [[escape(cell) for cell in row] for row in rows])
