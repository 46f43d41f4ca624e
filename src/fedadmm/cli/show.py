"""The command that shows one run."""

from collections.abc import Sequence

from rich.markup import escape

from fedadmm.cli.console import say, show_table
from fedadmm.cli.options import RunArgument
from fedadmm.report.runs import RunData, read_run
from fedadmm.report.table import TEXT_COLUMNS, comparison_rows


def show_command(run: RunArgument) -> None:
    """Show a run: its experiment, its rounds in short, what it reached."""
    shown = read_run(run)
    say((run / "experiment.toml").read_text())
    columns = ["round", shown.metric.name, "loss", "client_loss", "steps", "bytes_up", "seconds"]
    columns += ["simulated_seconds"] if shown.has_clock else []
    some = shown.rounds[::-1][:: max(1, len(shown.rounds) // 15)][::-1]
    rows = [["-" if (value := record.value(c)) is None else f"{value:.4g}" for c in columns] for record in some]
    show_table("Rounds", columns, rows, right=columns)
    if shown.rounds:
        until = "" if shown.target is None else " to the target"
        title = f"Outcome: rounds and upload{until}, final and best {shown.metric.name}"
        show_comparison([shown], title=title)


def show_comparison(runs: Sequence[RunData], *, title: str) -> None:
    """Print what runs reached, a row for each method."""
    rows = comparison_rows(runs)
    numbers = [column for column in rows[0] if column not in TEXT_COLUMNS]
    show_table(title, rows[0], (map(escape, row.values()) for row in rows), right=numbers, whole=("method",))
