"""The tables of CONVEX.md, from results/convex.json, which `fedadmm convex` makes."""

import re
from pathlib import Path

from fedadmm.report.table import markdown
from fedadmm.studies.convex import read, rows, theory_rows

RESULTS = Path(__file__).parent.parent / "results" / "convex.json"
BLOCK = re.compile(r"(<!-- convex (rounds|slopes) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
TABLES = {"rounds": rows, "slopes": theory_rows}


def filled(text: str) -> str:
    """Return a page with its blocks made again."""
    found = read(RESULTS)
    return BLOCK.sub(lambda m: f"{m[1]}\n{markdown(TABLES[m[2]](found, data=m[3]))}\n{m[4]}", text)
