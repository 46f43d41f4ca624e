"""The command that verifies run folders, or those of a deployed federation."""

from fedadmm.cli.arguments import folders_meant
from fedadmm.cli.console import say, show_facts
from fedadmm.cli.options import DataDir, RunsArgument
from fedadmm.core.errors import InputError


def check_command(runs: RunsArgument, data_dir: DataDir = None) -> None:
    """Verify a run folder, every checksum of it, and print what it holds; exit code 2 if it is damaged.

    Of several, a line each, and exit code 2 if one is damaged.
    Also the folders of a deployed federation, its server's and its clients', while it runs: STATE-DIR, or one in it.
    Example: fedadmm check runs/*
    """
    from fedadmm.flower.folders import check_folders, stores_below  # imports torch
    from fedadmm.runs.check import check_run

    folders = folders_meant(runs)
    damaged = []
    for run in folders:
        report = check_folders(run) if stores_below(run) else check_run(run, data_dir=data_dir)
        if len(runs) == 1:
            show_facts(report.facts)
        if not report.problems:
            rounds = f" ({report.facts['rounds']} rounds)" if "rounds" in report.facts else ""
            say("All is well." if len(runs) == 1 else f"{run}: all is well{rounds}")
        elif len(runs) == 1:
            raise InputError("\n".join(report.problems))
        else:
            more = f", and {len(report.problems) - 1} more" if len(report.problems) > 1 else ""
            say(f"{run}: {report.problems[0]}{more}")
            damaged.append(run)
    if damaged:
        told = f"{len(damaged)} of {len(folders)} folders are damaged, or no run folders"
        raise InputError(f"{told}; restore those named above from a copy, or remove them and run again")
