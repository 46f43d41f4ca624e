"""Opening a store: it is made if it is not there; its pages, and what it was written with, are checked first."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError
from fedadmm.state.encoding import DamagedError
from fedadmm.state.file import FORMAT, StateFile, create, damage
from fedadmm.state.pages import Layout, read_layout

# Of (key, what it was written with): how to go on with that; None where there is no more to say than that.
Advice = Callable[[str, str | None], str | None]


def fields_of(*types: type[Any]) -> str:
    """Return the fields of the messages in a store, which a store of other messages does not have."""
    return "; ".join(f"{each.__name__} {', '.join(each._fields)}".strip() for each in types)


def open_checked(
    folder: Path,
    *,
    about: Mapping[str, str],
    initial: Vector | None = None,
    remedy: str,
    advice: Advice | None = None,
    **options: Any,
) -> tuple[StateFile, dict[str, str], Layout]:
    """Open the file in a folder, or make it there with `initial`, theta^0; one written with anything else is refused.

    What it was written with and the layout of its pages are returned with it.
    remedy: what to do instead of going on. advice: how to go on. options: those of `StateFile`.
    """
    about = {"format": str(FORMAT), **about}
    if not folder.exists():
        create(folder, about=about, initial=initial)
    try:  # before LMDB reads the pages: where they contradict each other it may crash, or write over what counts
        layout = read_layout(folder / "data.mdb")
    except (DamagedError, OSError) as error:
        detail = f"data.mdb: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise damage("the store", folder, detail) from None
    file = StateFile(folder, **options)
    try:
        return file, _checked_about(file, about, remedy=remedy, advice=advice), layout
    except BaseException:
        file.close()
        raise


def _checked_about(
    file: StateFile, expected: Mapping[str, str], *, remedy: str, advice: Advice | None
) -> dict[str, str]:
    with file.reading("the store's description") as tables:
        about: dict[str, str] = json.loads(bytes(tables.get("meta", b"about")))
    for key, here in expected.items():
        if about.get(key) != here:
            how = None if advice is None else advice(key, about.get(key))
            raise InputError(
                f"{file.folder} was written with {key} {about.get(key)}, here it is {here}, and rounds of the two "
                f"do not mix; {how or 'go on with what wrote it'}, or {remedy}"
            )
    return about
