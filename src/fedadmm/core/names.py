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


def _import_module(module_name: str, *, path: str, what: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        # As `python -m` does: users keep their functions beside their TOML file. It stays, for what they import later.
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            remedy = "run from the folder that holds it, or install it"
            raise InputError(f'{what} "{path}": there is no module {error.name}; {remedy}') from error
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f'{what} "{path}": importing {module_name} fails with {reason}; correct the module') from error


def where_raised(error: Exception) -> str:
    """Return the file and the line in which an error was raised."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{line.filename}, line {line.lineno}"


def near_names(name: str, known: Iterable[str], *, elsewhere: Iterable[str] = ()) -> str:
    """Return the remedy for a name that is not known: those near it, here or elsewhere, or else all of here."""
    names = list(known)
    near = difflib.get_close_matches(name, [*names, *elsewhere])
    return f"did you mean {' or '.join(near)}?" if near else f"the presets are {', '.join(names)}"
