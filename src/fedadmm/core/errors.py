"""A user's mistake is told in one sentence, and so is what is wrong with a name: unknown, old, or not importable."""

import difflib
import importlib
import sys
import tomllib
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path
from types import FrameType
from typing import Any


class InputError(ValueError):
    """A user's mistake, said in one sentence with the value and the remedy; the command line exits with 2."""


def near_names(name: str, known: Iterable[str], *, elsewhere: Iterable[str] = (), what: str = "presets") -> str:
    """Return the remedy for a name that is not known: those near it, here or elsewhere, or else all of here."""
    names = list(known)
    as_small = {other.lower(): other for other in [*elsewhere, *names]}
    near = [as_small[found] for found in difflib.get_close_matches(name.lower(), as_small)]
    return f"did you mean {' or '.join(near)}?" if near else f"the {what} are {', '.join(names)}"


@contextmanager
def calling(what: str, *, remedy: str = "correct it") -> Iterator[None]:
    """Call a user's function: what it raises becomes a sentence that names it, with the error on a line below."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise failure(what, error, remedy=remedy) from error


def failure(what: str, error: Exception, *, remedy: str = "correct it") -> InputError:
    """Return the sentence for an error of a user's function, with the error and its place on a line below."""
    # Not in the libraries that the function uses, if any line is its own.
    libraries = (str(Path(__file__).parents[1]), *(get_path(name) for name in ("stdlib", "purelib", "platlib")))
    frames = traceback.extract_tb(error.__traceback__)
    line = ([frame for frame in frames if not frame.filename.startswith(libraries)] or frames)[-1]
    first = (str(error) or type(error).__name__).splitlines()[0]
    return InputError(
        f"{what} fails; {remedy}\n  {type(error).__name__}: {first} ({line.filename}, line {line.lineno})"
    )


def name_of(value: Any) -> str:
    """Return where a function or a class is defined, such as own:model, or the class of an object; a name as it is."""
    if isinstance(value, str):
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def import_named(path: str, *, what: str) -> Any:
    """Return the object that "package.module:attribute" names; `what` says in an error what it was wanted for."""
    module_name, _, attribute = path.partition(":")
    if module_name.endswith(".py"):
        name = ".".join(Path(module_name).with_suffix("").parts)
        raise InputError(f'{what} "{path}" names a file; write "{name}:{attribute}", the name of its module')
    if not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise InputError(f'{what} "{path}" is not a name; write it as "package.module:function"')
    look_for_modules_in(Path.cwd())
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(f'{what} "{path}": {_why_not(error, module_name)}') from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            why = f"{module_name} has no {attribute}; define it there or correct the name"
            if getattr(found, "__file__", "") is None:
                why = f"{module_name} is a folder without a module; write {module_name}.py, or name a module in it"
            raise InputError(f'{what} "{path}": {why}')
        found = getattr(found, name)
    return found


def _why_not(error: Exception, module_name: str) -> str:
    """Return why a module cannot be imported, and the remedy."""
    if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}; run from the folder that holds it, or install it"
    return f"importing {module_name} fails with {type(error).__name__}: {error}; correct the module"


def look_for_modules_in(folder: Path) -> None:
    """Let modules of users be imported from a folder: the working directory, or the folder of their TOML file.

    It stays in Python's path, because what a user's function imports later is looked for there too.
    """
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


# The words of an experiment's tables and what 0.1.0 called them; hashes are made with the old words, so that finished
# runs are found.
OLD_WORDS = {
    "algorithm": {"skip_probability": "silence", "randomised_server": "sitting_out"},
    "local": {"tolerance": "accuracy"},
}
# Names of the package itself, such as `fedadmm.Local`, and what they are called now.
OLD_NAMES = {"Local": "LocalTraining", "SittingOut": "RandomisedServer"}


def new_name(old: str, known: Iterable[str]) -> str | None:
    """Return the sentence that refuses an old word where a new one is known, None if it is not such a word."""
    for new, word in (pair for table in OLD_WORDS.values() for pair in table.items()):
        if word == old and new in known:
            return f"{old} is now called {new}; change the name"
    return None


def moved_modules() -> dict[str, str]:
    """Return where the modules and rooms of 0.1.0 are now."""
    return tomllib.loads(Path(__file__).with_name("moved_modules.toml").read_text(encoding="utf-8"))


def moved_module(name: str) -> str | None:
    """Return where a module of 0.1.0 is now, or its room; None if it is not one that moved."""
    package, *parts = name.split(".")
    places = moved_modules() if package == "fedadmm" else {}
    for size in range(len(parts), 0, -1):
        if (place := places.get(".".join(parts[:size]))) is not None:
            same = ".".join(["fedadmm", place, *parts[size:]])
            return same if find_spec(same) is not None else f"fedadmm.{place}"
    return None


class MovedModules:
    """A finder that Python asks last: an import of a module that moved is refused with where it is now."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse a module that moved; Python begins with its room, and the whole name is in an outer frame."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            name = frame.f_locals.get("name", name)
            frame = frame.f_back
        if (place := moved_module(name)) is not None:
            raise ImportError(f"{name} has moved to {place}; change the import", name=name)
