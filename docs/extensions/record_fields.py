"""The keys of a line of rounds.jsonl, from the class of a record and the comments beside its fields."""

import inspect
import re

from fedadmm import Record

FIELD = re.compile(r"^    (\w+): ([^=#]+?)(?: = [^#]*)?(?:  # (.*))?$")


def markdown() -> str:
    """Return a row for each key."""
    rows, above = ["| key | type | meaning |", "| --- | --- | --- |"], []
    body = inspect.getsource(Record).partition('"""')[2].partition('"""')[2].partition("    def ")[0]
    for line in body.splitlines():
        if line.strip().startswith("# "):
            above.append(line.strip().removeprefix("# "))
        elif found := FIELD.match(line):
            meaning = found[3] or " ".join(above)
            rows.append(f"| `{found[1]}` | {found[2].strip().replace('|', 'or')} | {meaning} |")
            above = []
    return "\n".join(rows)
