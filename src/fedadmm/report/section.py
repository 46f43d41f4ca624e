"""What a report is made of: sections of runs in one setting, and what the paper says of them."""

from collections.abc import Callable
from typing import NamedTuple

from fedadmm.report.runs import RunData


class Section(NamedTuple):
    """Runs of one setting: a heading, a plot and a table."""

    title: str
    runs: list[RunData]
    remark: str = ""


class Published(NamedTuple):
    """The paper's figure for a run."""

    where: str  # such as "Table III, MNIST non-IID"
    rounds: int | None  # to the target; None: not reached in 100 rounds


PublishedFor = Callable[[RunData], Published | None]


def nothing_published(run: RunData) -> Published | None:
    """Say that the paper has no figure for a run."""
    return None
