"""What 0.1.0 called otherwise: an old name that a user wrote is refused with the new one."""

# Of the package itself: `fedadmm.Local`.
NAMES = {"Local": "LocalTraining", "SittingOut": "RandomisedServer"}

# The longest beginning of a module's name counts.
MODULES = {"fedadmm.algorithms.around": "fedadmm.algorithms.wrapper"}


def moved_module(name: str) -> str | None:
    """Return the new name of a module of 0.1.0, None if it is not one that moved."""
    parts = name.split(".")
    for size in range(len(parts), 1, -1):
        start = ".".join(parts[:size])
        if start in MODULES:
            return ".".join([MODULES[start], *parts[size:]])
    return None
