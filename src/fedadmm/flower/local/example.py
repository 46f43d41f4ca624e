"""The example app, which comes with the package."""

import shutil
from pathlib import Path

from fedadmm.core.errors import InputError

PACKAGED = Path(__file__).parent / "app"
IN_THE_SOURCES = Path(__file__).parents[4] / "examples" / "flower-fedadmm"  # of an editable installation


def copy_app(folder: Path) -> None:
    """Copy the example app to a folder that is not there yet."""
    source = PACKAGED if PACKAGED.exists() else IN_THE_SOURCES
    try:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except FileExistsError:
        raise InputError(f"{folder} is there already; give another folder") from None
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error}; give another folder") from error
