"""The command that runs one experiment."""

from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.options import Changes, DataDir, LogTo, Out, PlanArgument, Rounds, Seed, experiment_of
from fedadmm.cli.progress import run_with_progress, tell_end
from fedadmm.runs.listeners import Interruption
from fedadmm.runs.records import EXIT_CODES

app = typer.Typer()


@app.command()
def run_command(
    plan: PlanArgument,
    changes: Changes = None,
    variant: Annotated[str | None, typer.Option(help="A variant of the file, or an algorithm at its defaults.")] = None,
    rounds: Rounds = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
    log_to: LogTo = "",
) -> None:
    """Run an experiment, or go on with it where it stopped.

    Example: fedadmm run digits --set algorithm.name=feddyn --rounds 20
    """
    from fedadmm.runs.sinks import sinks_from

    experiment = experiment_of(plan, variant=variant, changes=changes, rounds=rounds, seed=seed)
    sinks, interruption = sinks_from(log_to), Interruption()
    ended = run_with_progress(experiment, out=out, data_dir=data_dir, interruption=interruption, sinks=sinks)
    tell_end(ended)
    raise typer.Exit(EXIT_CODES[ended.status])
