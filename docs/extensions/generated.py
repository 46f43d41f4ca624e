"""What a page has from the code: `<!-- generated NAME -->` becomes what the module NAME says of it, in Markdown."""

import re
from importlib import import_module

from sphinx.application import Sphinx

MARK = re.compile(r"<!-- generated (\w+) -->")


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = MARK.sub(lambda found: import_module(found[1]).markdown(), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill pages before they are read."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
