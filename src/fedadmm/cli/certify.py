"""The command that holds runs against the theory."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedadmm.cli.state import DataDir
from fedadmm.core.errors import InputError
from fedadmm.studies.certify import Verdict, certify_run

console = Console()

RunsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="Run folders, such as runs/quadratic-fedadmm-0123456789.", show_default=False
    ),
]


def certify_command(runs: RunsArgument, data_dir: DataDir = None) -> None:
    """Hold a run's certificates against Theorem 1 of the paper: conditions, constants, measured mean of V and bound.

    The run needs certificates: fedadmm run quadratic --set certificate.every=1
    Of several runs, one verdict follows the other; exit code 2 if one of them cannot be certified.

    Example: fedadmm certify runs/quadratic-fedadmm-*
    """
    problems = []
    for run in runs:
        try:
            verdict = certify_run(run, data_dir=data_dir)
        except InputError as error:
            problems.append(str(error))
            continue
        if len(runs) > 1:
            console.print(f"{run}:", soft_wrap=True, highlight=False, markup=False)
        _show(verdict)
    if problems:
        raise InputError("\n".join(problems))


def _show(verdict: Verdict) -> None:
    table = Table(show_header=False, box=None)
    for name, text in verdict.facts.items():
        table.add_row(name, text)
    console.print(table)
    console.print(verdict.sentence, soft_wrap=True, highlight=False)
