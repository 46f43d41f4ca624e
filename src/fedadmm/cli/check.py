"""The command that verifies a run folder, or those of a deployed federation."""

from fedadmm.cli.console import say, show_facts
from fedadmm.cli.options import DataDir, RunArgument
from fedadmm.core.errors import InputError


def check_command(run: RunArgument, data_dir: DataDir = None) -> None:
    """Verify a run folder, every checksum of it, and print what it holds; exit code 2 if it is damaged.

    Also the folders of a deployed federation, its server's and its clients', while it runs: STATE-DIR, or one in it.
    Example: fedadmm check runs/digits-fedadmm-0123456789
    """
    from fedadmm.flower.folders import check_folders, stores_below  # imports torch
    from fedadmm.runs.check import check_run

    report = check_folders(run) if stores_below(run) else check_run(run, data_dir=data_dir)
    show_facts(report.facts)
    if report.problems:
        raise InputError("\n".join(report.problems))
    say("All is well.")
