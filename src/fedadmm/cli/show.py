"""The command that shows one run."""

from collections.abc import Sequence

from rich.markup import escape

from fedadmm.cli.arguments import folders_meant
from fedadmm.cli.console import say, show_table
from fedadmm.cli.options import RunsArgument
from fedadmm.core.metrics import metric_like
from fedadmm.report.methods import methods_of
from fedadmm.report.notes import table_notes
from fedadmm.report.runs import RunData, read_run
from fedadmm.report.table import TEXT_COLUMNS, comparison_rows, format_bytes, format_seconds, has_own_downloads
from fedadmm.runs.records import NOISE_FILE, Record


def show_command(runs: RunsArgument) -> None:
    """Show a run: its experiment, its rounds in short, what it reached.

    Of several, one after the other.
    Example: fedadmm show runs/*
    """
    for shown in [read_run(folder) for folder in folders_meant(runs)]:
        if len(runs) > 1:
            say(f"{shown.path}\n")
        _show(shown)


def _show(shown: RunData) -> None:
    say((shown.path / "experiment.toml").read_text(encoding="utf-8"))
    if (file := shown.path / NOISE_FILE).exists():
        say(file.read_text(encoding="utf-8"))
    own = shown.experiment.get("model", {}).get("metrics", {})
    columns = list(dict.fromkeys(["round", shown.metric.name, *own, "loss", "client_loss", "steps", "bytes_up"]))
    columns += ["lost"] if any(record.lost for record in shown.rounds) else []
    columns += ["seconds", "simulated_seconds"] if shown.has_clock else ["seconds"]
    scored = [record for record in shown.rounds if shown.metric.of(record) is not None] or shown.rounds
    some = scored[::-1][:: max(1, len(scored) // 15)][::-1]
    show_table("Rounds", columns, ([_text(record, c) for c in columns] for record in some), right=columns)
    if shown.rounds:
        until = "" if shown.target is None else " to the target"
        title = f"Outcome: rounds and bytes{until}, final and best {shown.metric.name}"
        show_comparison([shown], title=title)
        say(_in_all(shown))


def _in_all(run: RunData) -> str:
    """Return what all rounds took, whether or not a target was reached."""
    parts = [f"{format_bytes(run.total('bytes_up')[-1])} uploaded"]
    if has_own_downloads(run):
        parts.append(f"{format_bytes(run.total('bytes_down')[-1])} downloaded")
    if run.has_clock:
        parts.append(f"{format_seconds(run.total('simulated_seconds')[-1])} of simulated time")
    if lost := sum(len(record.lost) for record in run.rounds):
        parts.append(f"{lost:,} answer{'s' * (lost > 1)} lost")
    return f"In all {len(run.rounds)} rounds: {', '.join(parts)}."


def _text(record: Record, column: str) -> str:
    value = len(record.lost) if column == "lost" else record.value(column)
    if value is None:
        return "-"
    if column.startswith("bytes"):
        return format_bytes(value)
    return f"{value:,}" if isinstance(value, int) else metric_like(column).text(value)


def show_comparison(runs: Sequence[RunData], *, title: str) -> None:
    """Print what runs reached, a row for each method."""
    rows = comparison_rows(runs)
    numbers = [column for column in rows[0] if column not in TEXT_COLUMNS]
    show_table(title, rows[0], (map(escape, row.values()) for row in rows), right=numbers, whole=("method",))
    for note in table_notes(methods_of(runs)):
        say(note)
