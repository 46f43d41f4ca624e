"""Whether a module that was imported is still what its file says: a notebook may have imported it before an edit."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

STARTED = time.time()  # a file that is older than this process was imported as it is


def is_stale(module: str, path: Path, content: bytes) -> bool:
    """Return whether a file was edited after its module was imported, so that other code runs than it holds.

    Seen by its functions; one that an import hook made another of, as pytest does, is told by the age of the file.
    """
    loaded = sys.modules.get(module)
    if loaded is None or path.stat().st_mtime < STARTED:
        return False
    written: dict[str, set[Any]] = {}
    for code in _codes(compile(content, str(path), "exec", dont_inherit=True)):
        written.setdefault(code.co_qualname, set()).add(_content(code))
    running = [code for code in _running(vars(loaded), module) if code.co_qualname in written]
    return any(_content(code) not in written[code.co_qualname] for code in running)


def _running(names: Any, module: str) -> Iterator[CodeType]:
    """Yield the code of the functions and methods of a module."""
    for value in list(names.values()):
        own = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(own, FunctionType) and own.__module__ == module:
            yield own.__code__
        elif isinstance(value, type) and value.__module__ == module:
            yield from _running(vars(value), module)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _codes(part)


def _content(code: CodeType) -> Any:
    """Return what code does; where its lines are and its docstring do not count."""
    constants = code.co_consts[1:] if code.co_consts and isinstance(code.co_consts[0], str) else code.co_consts
    inner = (_content(part) if isinstance(part, CodeType) else repr(part) for part in constants)
    return code.co_code, code.co_names, code.co_varnames, tuple(inner)
