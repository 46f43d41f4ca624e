"""The table of `fedadmm convex`: rounds to near the optimum, measured slopes, and what theory promises."""

from typing import Any

from fedadmm.studies.convex import LIMITS, LOST, METHODS, TARGETS, THEORY, Cell, Found, cells, promised


def rows(found: Found, *, data: str) -> list[dict[str, str]]:
    """Return a row per method: for each participation the rounds to each target, and the slope."""
    return [_row(found, name, data) for name in METHODS]


def theory_rows(found: Found, *, data: str) -> list[dict[str, str]]:
    """Return a row per method: the slope that theory promises with all clients, the measured one, and with some."""
    table = []
    for name in METHODS:
        cell = Cell(name, data, 1.0)
        with_all, with_some = THEORY[name]
        table.append(
            {
                "method": name,
                "all: theory": f"{promised(cell):.3f} or steeper" if with_all == "number" else with_all,
                "all: measured": _slope(found.get(cell.key)),
                "some: theory": with_some,
                **{
                    f"{_share(share)}: measured": _slope(found.get(Cell(name, data, share).key))
                    for share in LIMITS
                    if share != 1
                },
            }
        )
    return table


def broken_promises(found: Found) -> list[str]:
    """Return the cells whose measured slope is flatter than theory promises, to 5 %."""
    broken = []
    for cell in cells():
        number, entry = promised(cell), found.get(cell.key)
        if number is not None and entry is not None and (entry["slope"] is None or entry["slope"] > 0.95 * number):
            broken.append(cell.key)
    return broken


def _row(found: Found, name: str, data: str) -> dict[str, str]:
    row = {"method": name}
    for share in LIMITS:
        entry = found.get(Cell(name, data, share).key)
        for number, target in enumerate(TARGETS):
            row[f"{_share(share)}: {target:.0e}".replace("e-0", "e-")] = _rounds(entry, number)
        row[f"{_share(share)}: ends at"] = "" if entry is None else _end(entry)
    return row


def _rounds(entry: dict[str, Any] | None, number: int) -> str:
    if entry is None:
        return ""
    arrival = entry["arrivals"][number]
    return f"{entry['rounds']}+" if arrival is None else str(arrival)


def _end(entry: dict[str, Any]) -> str:
    """Return where a run ended that did not arrive."""
    if entry["arrivals"][-1] is not None:
        return "-"
    return "diverges" if not entry["last"] < LOST / 10 else f"{entry['last']:.1g}"


def _slope(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    return "-" if entry["slope"] is None or entry["arrivals"][-1] is None else f"{entry['slope']:.3g}"


def _share(participation: float) -> str:
    return "all" if participation == 1 else f"{participation:.0%}"
