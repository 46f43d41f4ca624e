"""What the server says, also as lines of JSON for other programs: log.jsonl in its folder, rotated."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

MOST_BYTES, FILES = 10_000_000, 5


class JsonLines(logging.Formatter):
    """A line of JSON for each record: time, level, message, and an error if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


@contextmanager
def lines_of_log(path: Path) -> Iterator[None]:
    """Write meanwhile what goes to Flower's log to a file too, which is put aside when it is full."""
    handler = RotatingFileHandler(path, maxBytes=MOST_BYTES, backupCount=FILES, delay=True)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("flwr")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
