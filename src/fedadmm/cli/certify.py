"""The command that holds runs against the theory."""

from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.console import say, show_facts
from fedadmm.cli.options import DataDir
from fedadmm.cli.report import tell_left_out
from fedadmm.core.errors import InputError


def certify_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, such as runs/quadratic-fedadmm-0123456789.")
    ],
    data_dir: DataDir = None,
) -> None:
    """Compare a run's certificates with Theorem 1 of the paper: the measured mean of V with its bound.

    The verdict names the conditions and constants too.
    The run needs certificates: fedadmm run quadratic --set certificate.every=1
    Of several runs, one verdict follows the other, and those without certificates are left out; exit code 2 if another
    one cannot be certified, or none is left.

    Example: fedadmm certify runs/quadratic-fedadmm-*
    """
    from fedadmm.studies.certify import NoCertificateError, certify_run  # imports torch

    problems, left_out = [], []
    for run in runs:
        try:
            verdict = certify_run(run, data_dir=data_dir)
        except NoCertificateError as error:
            left_out.append(str(error))
            continue
        except InputError as error:
            problems.append(str(error))
            continue
        if len(runs) > 1:
            say(f"{run}:")
        show_facts(verdict.facts)
        say(verdict.sentence)
    if len(left_out) == len(runs):
        problems = left_out
    if problems:
        raise InputError("\n".join(problems))
    tell_left_out(left_out)
