"""The command that shows one run."""

import typer

from fedadmm.cli.console import out, say, titled_table
from fedadmm.cli.options import RunArgument
from fedadmm.report.runs import read_run
from fedadmm.report.table import comparison_table

app = typer.Typer()


@app.command()
def show_command(run: RunArgument) -> None:
    """Show a run: its experiment, its rounds in short, what it reached."""
    shown = read_run(run)
    say((run / "experiment.toml").read_text())
    table = titled_table("Rounds")
    columns = ["round", shown.metric.name, "loss", "client_loss", "steps", "bytes_up", "seconds"]
    columns += ["simulated_seconds"] if shown.has_clock else []
    for column in columns:
        table.add_column(column, justify="right")
    step = max(1, len(shown.rounds) // 15)
    for record in shown.rounds[::-1][::step][::-1]:
        table.add_row(*("-" if (value := record.value(c)) is None else f"{value:.4g}" for c in columns))
    out.print(table)
    if shown.rounds:
        until = "" if shown.target is None else " to the target"
        title = f"Outcome: rounds and upload{until}, final and best {shown.metric.name}"
        out.print(comparison_table([shown], title=title))
