"""Tables in a file, one a line, as rounds.jsonl has them."""

import json
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> list[Any]:
    """Return the tables of a file; a last line without an end was cut in half by a kill; the store has its round."""
    *whole, _ = path.read_text().split("\n")
    return [json.loads(line) for line in whole]
