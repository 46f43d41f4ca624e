"""What is said of a path that is no run folder, by all that open one."""

from pathlib import Path

from fedadmm.core.errors import InputError


def no_run_folder(path: Path, *, lacks: str) -> InputError:
    """Return the mistake of naming a path as a run folder that is none: it lacks a file that all have."""
    reason = f"it has no {lacks}" if path.is_dir() else "it is a file" if path.exists() else "it is not there"
    return InputError(
        f"{path} is no run folder: {reason}; `fedadmm run` makes one, and `fedadmm list` names those in runs"
    )
