"""The command that holds a run against the theory."""

from rich.console import Console
from rich.table import Table

from fedadmm.cli_state import DataDir, RunArgument
from fedadmm.experiments.certify import certify_run

console = Console()


def certify_command(run: RunArgument, data_dir: DataDir = None) -> None:
    """Hold a run's certificates against Theorem 1 of the paper: conditions, constants, measured mean of V and bound.

    The run needs certificates: fedadmm run quadratic --set certificate.every=1

    Example: fedadmm certify runs/quadratic-fedadmm-0123456789
    """
    verdict = certify_run(run, data_dir=data_dir)
    table = Table(show_header=False, box=None)
    for name, text in verdict.facts.items():
        table.add_row(name, text)
    console.print(table)
    console.print(verdict.sentence, soft_wrap=True, highlight=False)
