"""The table of `fedadmm convex`: rounds to near the optimum, measured slopes, and what theory promises."""

from typing import Any

from fedadmm.studies.convex import LIMITS, LOST, METHODS, TARGETS, Cell, cells, promised

Found = dict[str, dict[str, Any]]

NEIGHBOURHOOD = "a neighbourhood"
# With all clients, and with some; a number takes the place of None.
THEORY: dict[str, tuple[str | None, str]] = {
    "FedSGD": (None, NEIGHBOURHOOD),
    "SCAFFOLD": ("linear", "linear"),
    "FedADMM, eta 1": (None, "none"),
    "FedADMM, eta |S|/m": (None, "1/T"),
    "FedADMM, eta seen": (None, "none"),
    "FedADMM, released": ("none", "none"),
    "FedDyn": (None, "linear, rho large"),
    "FedDyn, seen": (None, "none"),
    "randomised ADMM": ("converges", "converges"),
    "FedPD": (None, ""),
    "FedHybrid, gradient": ("linear", ""),
    "FedHybrid, half": ("linear", ""),
    "FedHybrid, Newton": ("linear", ""),
}


def rows(found: Found, *, data: str) -> list[dict[str, str]]:
    """Return a row per method: for each participation the rounds to each target, and the slope."""
    return [_row(found, name, data) for name in METHODS]


def theory_rows(found: Found, *, data: str) -> list[dict[str, str]]:
    """Return a row per method: the slope that theory promises with all clients, the measured one, and with some."""
    table = []
    for name in METHODS:
        cell = Cell(name, data, 1.0)
        number, (words, with_some) = promised(cell), THEORY.get(name, (NEIGHBOURHOOD, NEIGHBOURHOOD))
        table.append(
            {
                "method": name,
                "all: theory": words or f"{number:.3f} or steeper",
                "all: measured": _slope(found.get(cell.key)),
                "some: theory": with_some or "needs all",
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
