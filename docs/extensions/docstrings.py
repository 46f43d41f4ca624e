"""Docstrings are plain text: their symbols are no markup, and their entries become a list of arguments."""

import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

from record_fields import fields_of
from sphinx.application import Sphinx

from fedadmm import Algorithm

ENTRY = re.compile(r"^(\w+(?:, \w+)*)(?: = (.+?))?: (?=\S)(.*)$")
MARKUP = re.compile(r"([\\*|_])")
OTHERS = {"fedadmm.Vector": "A flat vector: a torch.Tensor of the form [d], or [K, d] for a stack of K clients."}


def plain(text: str) -> str:
    """Return text with its `code` as code and everything else as it stands."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(f"`{part}`" if part.startswith("`") else MARKUP.sub(r"\\\1", part) for part in parts)


def entries(lines: list[str]) -> list[str]:
    """Return a docstring in reStructuredText: a sentence as it is, `key = example: meaning` as a list."""
    made: list[str] = []
    blocks = re.split(r"\n(?!    )", "\n".join(lines))
    for block in blocks:
        text = " ".join(block.split())
        found = ENTRY.match(text)
        if found and made:
            example = f" (such as ``{found[1]} = {found[2]}``)" if found[2] else ""
            made += ["", f"``{found[1]}``{example}", f"    {plain(found[3])}"]
        elif found is None and made and text and made[-1] and not made[-1].startswith("    "):
            made[-1] += f" {plain(text)}"
        else:
            made.append(plain(text))
    return [*made, ""]


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if name in OTHERS:  # what it is at run time has a docstring of Python's
        lines[:] = [OTHERS[name]]
    elif lines and lines[0].startswith("Alias for field number"):  # of a NamedTuple: ours is the comment beside it
        *module, kind, field = name.split(".")
        owner = getattr(import_module(".".join(module)), kind)
        lines[:] = [meaning for known, _, meaning in fields_of(owner) if known == field]
    lines[:] = entries(lines)


def _signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """Return the signature of a method of ours without its types: ranges are in words, in the reference of keys."""
    if isinstance(obj, type) and issubclass(obj, Algorithm) and is_dataclass(obj):
        return f"({', '.join(f'{field.name}={field.default!r}' for field in fields(obj))})", returns
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """Let autodoc pass every docstring through here."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
