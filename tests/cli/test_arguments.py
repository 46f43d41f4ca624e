"""What the arguments of commands mean."""

import pytest

from fedadmm.cli.arguments import rows_named

ROWS = ["fedavg-0.1", "fedavg-0.2", "fedavgm-0.1", "feddyn-0.1-seen", "plain"]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        (None, ROWS),
        ("plain", ["plain"]),
        ("fedavg-0.2", ["fedavg-0.2"]),
        ("fedavg", ["fedavg-0.1", "fedavg-0.2"]),  # and not fedavgm's
        ("feddyn", ["feddyn-0.1-seen"]),
        ("fedavg-0.2,fedavg", ["fedavg-0.2", "fedavg-0.1"]),
    ],
)
def test_a_method_is_all_its_rows_and_a_row_is_itself(asked: str | None, meant: list[str]) -> None:
    assert rows_named(asked, known=ROWS) == meant
