"""Curves that a reader can point at: a page has the numbers, static/site.js draws them with Plotly."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Okabe and Ito's colours, which the colour-blind tell apart; readable on white and on black.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c8c8c", "#b8a800")


class Curves(NamedTuple):
    """Curves as a notebook shows them."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def curves(
    traces: Mapping[str, tuple[Sequence[float], Sequence[float | None]]], *, x: str, y: str, log: bool = False
) -> Curves:
    """Return curves by their names, each as (x, y)."""
    data = [
        {
            "name": name,
            "x": list(xs),
            "y": [None if value is None or not math.isfinite(value) else float(f"{value:.4g}") for value in ys],
            "mode": "lines",
            "line": {"width": 2, "color": COLOURS[number % len(COLOURS)]},
        }
        for number, (name, (xs, ys)) in enumerate(traces.items())
    ]
    figure = {"data": data, "x": x, "y": y, "log": log}
    text = json.dumps(figure).replace("</", "<\\/")
    return Curves(f'<div class="curves"><script type="application/json">{text}</script></div>')
