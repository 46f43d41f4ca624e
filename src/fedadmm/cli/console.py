"""Where commands print: results on stdout, what happens meanwhile on stderr."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.box import HEAVY_HEAD, Box
from rich.console import Console, JustifyMethod
from rich.table import Table

out = Console()
err = Console(stderr=True)


def say(sentence: str, *, to: Console = out, style: str | None = None) -> None:
    """Print a sentence as it is: lines are not folded, brackets are not markup, and :fire: is not a picture."""
    to.print(sentence, style=style, soft_wrap=True, markup=False, emoji=False, highlight=False)


def show_table(
    title: str | None,
    columns: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    caption: str | None = None,
    box: Box | None = HEAVY_HEAD,
) -> None:
    """Print a table; some columns are on the right, and some are never folded."""
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left", box=box)
    for column in columns:
        justify: JustifyMethod = "right" if column in right else "left"
        no_wrap = column in whole
        table.add_column(column, justify=justify, no_wrap=no_wrap, overflow="ellipsis" if no_wrap else "fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def show_rows(rows: Sequence[Mapping[str, str]], *, title: str) -> None:
    """Print rows that all have the same columns, the first of which is never folded."""
    show_table(title, rows[0], (row.values() for row in rows), whole=[*rows[0]][:1])


def show_facts(facts: Mapping[str, str]) -> None:
    """Print names and what there is to say of each."""
    table = Table(show_header=False, box=None)
    for name, text in facts.items():
        table.add_row(name, text)
    out.print(table)
