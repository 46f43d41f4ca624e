"""Whose a module is, the user's or a library's, and where its source is."""

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path
from types import ModuleType
from typing import Literal

MAIN = "__main__"
INSTALLED = {"site-packages", "dist-packages"}
NOT_COUNTED = (str(get_path("stdlib")), str(get_path("platstdlib")), str(Path(__file__).parents[1]))
COUNTED_ELSEWHERE = ("fedadmm", "torch")  # a run folder has their versions anyway

Owner = Literal["user", "package", "nobody"]  # nobody: what does not count, as the standard library


def owner_of(module: str) -> Owner:
    """Return whose a module is; it is not imported for that, and neither is the package around it."""
    places = _places(module.partition(".")[0])
    if any(INSTALLED & {*place.parts} for place in places):
        return "package"
    counts = places and not any(str(place).startswith(NOT_COUNTED) for place in places)
    return "user" if counts or is_notebook(module) else "nobody"


def is_notebook(module: str) -> bool:
    """Return whether a module is the one of a notebook or of Python's prompt, which has no file."""
    return module == MAIN and file_of(MAIN) is None


def file_of(module: str) -> Path | None:
    """Return the file of a user's module, also of one that is not imported yet; None if it has none."""
    loaded = sys.modules.get(module)
    if isinstance(loaded, ModuleType):
        place = getattr(loaded, "__file__", None)
    else:
        try:
            spec = find_spec(module)
        except (ImportError, AttributeError, ValueError):
            return None
        place = spec.origin if spec is not None and spec.has_location else None
    return Path(place) if place is not None and Path(place).is_file() else None  # Python calls its input <stdin>


def _places(top: str) -> list[Path]:
    """Return the file or the folders of a module that is in no other."""
    if (file := file_of(top)) is not None:
        return [file]
    try:
        spec = find_spec(top)
    except (ImportError, AttributeError, ValueError):
        return []
    return [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]


@cache
def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it has none, or counts elsewhere."""
    if package in COUNTED_ELSEWHERE:
        return None
    try:
        return version(package)
    except PackageNotFoundError:  # its modules have another name than it
        found = getattr(sys.modules.get(package), "__version__", None)
        return None if found is None else str(found)
