"""The command that shows one run."""

from collections.abc import Sequence

from rich.markup import escape

from fedadmm.cli.console import say, show_table
from fedadmm.cli.options import RunArgument
from fedadmm.report.methods import methods_of
from fedadmm.report.notes import table_notes
from fedadmm.report.runs import RunData, read_run
from fedadmm.report.table import TEXT_COLUMNS, comparison_rows, format_bytes
from fedadmm.runs.records import NOISE_FILE, Record


def show_command(run: RunArgument) -> None:
    """Show a run: its experiment, its rounds in short, what it reached."""
    shown = read_run(run)
    say((run / "experiment.toml").read_text())
    if (file := run / NOISE_FILE).exists():
        say(file.read_text())
    own = shown.experiment.get("model", {}).get("metrics", {})
    columns = list(dict.fromkeys(["round", shown.metric.name, *own, "loss", "client_loss", "steps", "bytes_up"]))
    columns += ["seconds", "simulated_seconds"] if shown.has_clock else ["seconds"]
    scored = [record for record in shown.rounds if shown.metric.of(record) is not None] or shown.rounds
    some = scored[::-1][:: max(1, len(scored) // 15)][::-1]
    show_table("Rounds", columns, ([_text(record, c) for c in columns] for record in some), right=columns)
    if shown.rounds:
        until = "" if shown.target is None else " to the target"
        title = f"Outcome: rounds and upload{until}, final and best {shown.metric.name}"
        show_comparison([shown], title=title)


def _text(record: Record, column: str) -> str:
    value = record.value(column)
    if value is None:
        return "-"
    if column.startswith("bytes"):
        return format_bytes(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def show_comparison(runs: Sequence[RunData], *, title: str) -> None:
    """Print what runs reached, a row for each method."""
    rows = comparison_rows(runs)
    numbers = [column for column in rows[0] if column not in TEXT_COLUMNS]
    show_table(title, rows[0], (map(escape, row.values()) for row in rows), right=numbers, whole=("method",))
    for note in table_notes(methods_of(runs)):
        say(note)
