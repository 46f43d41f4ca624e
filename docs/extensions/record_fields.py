"""The keys of a line of rounds.jsonl, from the class of a record and the comments beside its fields."""

import inspect
import re
from collections.abc import Iterator

from fedadmm import Record

FIELD = re.compile(r"^    (\w+): ([^=#]+?)(?: = [^#]*)?(?:  # (.*))?$")


def fields_of(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the type and the comment of each field of a class that has a docstring."""
    above: list[str] = []
    body = inspect.getsource(kind).partition('"""')[2].partition('"""')[2].partition("    def ")[0]
    for line in body.splitlines():
        if line.strip().startswith("# "):
            above.append(line.strip().removeprefix("# "))
        elif found := FIELD.match(line):
            yield found[1], found[2].strip(), found[3] or " ".join(above)
            above = []


def markdown() -> str:
    """Return a row for each key."""
    rows = [f"| `{name}` | {kind.replace('|', 'or')} | {meaning} |" for name, kind, meaning in fields_of(Record)]
    return "\n".join(["| key | type | meaning |", "| --- | --- | --- |", *rows])
