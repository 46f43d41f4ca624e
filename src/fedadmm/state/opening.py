"""What is looked at before a store is used: its pages, and what it was written with."""

import json
from collections.abc import Mapping
from pathlib import Path

from fedadmm.core.errors import InputError
from fedadmm.state.encoding import DamagedError
from fedadmm.state.file import StateFile, damage
from fedadmm.state.pages import Layout, read_layout


def checked_layout(folder: Path) -> Layout:
    """Return the layout of a store's pages, if they do not contradict each other.

    Before LMDB reads them: on such pages it may crash, or write over what counts.
    """
    try:
        return read_layout(folder / "data.mdb")
    except DamagedError as error:
        raise damage("the store", folder, str(error)) from None
    except OSError as error:
        raise damage("the store", folder, f"data.mdb: {error.strerror}") from None


def checked_about(file: StateFile, expected: Mapping[str, str], *, remedy: str) -> dict[str, str]:
    """Return what a store was written with; where it is not what is expected, refuse it."""
    with file.reading("the store's description") as tables:
        about: dict[str, str] = json.loads(bytes(tables.get("meta", b"about")))
    for key, here in expected.items():
        if about.get(key) != here:
            raise InputError(
                f"{file.folder} was written with {key} {about.get(key)}, here it is {here}, and rounds of the two "
                f"do not mix; go on with what wrote it, or {remedy}"
            )
    return about
