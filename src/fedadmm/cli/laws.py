"""The command that holds an algorithm to the laws."""

from typing import Annotated

import typer

from fedadmm.cli.console import say


def laws_command(
    algorithm: Annotated[str, typer.Argument(help='A name of `fedadmm list`, or "module:Class" of your own file.')],
) -> None:
    """Hold an algorithm, also your own, to the laws that every method obeys; exit code 1 if one is broken.

    A law that is broken is followed by what was seen and the remedy. It takes some seconds. The constants are those of
    the class; with others, call fedadmm.check_laws(MyMethod(rho=0.5)) from Python.

    Example: fedadmm laws own:MyMethod
    """
    from fedadmm.config.algorithm_table import algorithm_from_table  # imports torch
    from fedadmm.studies.laws import check_laws

    verdicts = check_laws(algorithm_from_table({"name": algorithm}))
    for verdict in verdicts:
        say(str(verdict))
    raise typer.Exit(1 if any(verdict.needed and verdict.broken for verdict in verdicts) else 0)
