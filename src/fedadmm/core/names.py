"""Names that users write: functions of their own as "package.module:function", and what is near a name unknown."""

import difflib
import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from fedadmm.core.errors import InputError

EngineName = Literal["workers", "serial", "stacked", "ray", "auto"]


def import_named(path: str, *, what: str) -> Any:
    """Return the object that "package.module:attribute" names; `what` says in an error what it was wanted for."""
    module_name, _, attribute = path.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise InputError(f'{what} "{path}" is not a name; write it as "package.module:function"')
    found = _import_module(module_name, path=path, what=what)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise InputError(f'{what} "{path}": {module_name} has no {attribute}; define it there or correct the name')
        found = getattr(found, name)
    return found


def look_for_modules_in(folder: Path) -> None:
    """Let modules of users be imported from a folder: the working directory, or the folder of their TOML file.

    It stays in Python's path, because what a user's function imports later is looked for there too.
    """
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


def _import_module(module_name: str, *, path: str, what: str) -> Any:
    look_for_modules_in(Path.cwd())
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        raise InputError(f'{what} "{path}": {_why_not(error, module_name)}') from error


def _why_not(error: Exception, module_name: str) -> str:
    """Return why a module cannot be imported, and the remedy."""
    if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}; run from the folder that holds it, or install it"
    return f"importing {module_name} fails with {type(error).__name__}: {error}; correct the module"


def where_raised(error: Exception) -> str:
    """Return the file and the line in which an error was raised."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{line.filename}, line {line.lineno}"


def near_names(name: str, known: Iterable[str], *, elsewhere: Iterable[str] = ()) -> str:
    """Return the remedy for a name that is not known: those near it, here or elsewhere, or else all of here."""
    names = list(known)
    near = difflib.get_close_matches(name, [*names, *elsewhere])
    return f"did you mean {' or '.join(near)}?" if near else f"the presets are {', '.join(names)}"
