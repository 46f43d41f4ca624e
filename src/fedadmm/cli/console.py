"""Where commands print: results on stdout, what happens meanwhile on stderr."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

out = Console()
err = Console(stderr=True)


def say(sentence: str, *, to: Console = out, style: str | None = None) -> None:
    """Print a sentence as it is: lines are not folded, and brackets are no markup."""
    to.print(sentence, style=style, soft_wrap=True, markup=False, highlight=False)


def titled_table(title: str, *, caption: str | None = None) -> Table:
    """Return a table without columns; its title and caption are on the left."""
    return Table(title=title, title_justify="left", caption=caption, caption_justify="left")


def show_rows(rows: Sequence[Mapping[str, str]], *, title: str) -> None:
    """Print rows that all have the same columns."""
    table = titled_table(title)
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*row.values())
    out.print(table)


def show_facts(facts: Mapping[str, str]) -> None:
    """Print names and what there is to say of each."""
    table = Table(show_header=False, box=None)
    for name, text in facts.items():
        table.add_row(name, text)
    out.print(table)
