"""The command that runs one experiment."""

from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.arguments import experiment_of
from fedadmm.cli.console import say
from fedadmm.cli.options import Changes, DataDir, LogTo, Out, PlanArgument, Rounds, Seed
from fedadmm.cli.progress import CommandSession, how_it_ended
from fedadmm.runs.goal import EXIT_CODES


def run_command(
    plan: PlanArgument,
    changes: Changes = None,
    variant: Annotated[str | None, typer.Option(help="A variant of the file, or an algorithm at its defaults.")] = None,
    rounds: Rounds = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
    log_to: LogTo = "",
    accept_code: Annotated[
        bool,
        typer.Option("--accept-code", help="Go on although your code has changed since; the run has rounds of both."),
    ] = False,
) -> None:
    """Run an experiment, or go on with it where it stopped.

    Example: fedadmm run digits --set algorithm.name=feddyn --rounds 20
    """
    experiment = experiment_of(plan, variant=variant, changes=changes, rounds=rounds, seed=seed)
    ended = CommandSession(out, data_dir, log_to, accept_code=accept_code).run(experiment)
    say(how_it_ended(ended))
    raise typer.Exit(EXIT_CODES[ended.status])
