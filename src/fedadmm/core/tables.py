"""Nested tables, as TOML has them, and the same with dotted keys."""

from typing import Any

Table = dict[str, Any]


def dotted(table: Table, prefix: str = "") -> Table:
    """Return nested tables as one with dotted keys, the algorithm's name first: it clears its other keys.

    A schedule or a distribution is one value, though it is written as a table.
    """
    found: Table = {}
    for key, value in sorted(table.items(), key=lambda item: item[0] != "name"):
        nested = isinstance(value, dict) and not {"schedule", "distribution"} & value.keys()
        found |= dotted(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found
