"""The command that makes a report of runs."""

import gc
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedadmm.core.errors import InputError
from fedadmm.report.runs import by_setting, differences, gather_runs, sections_of


def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of run folders.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder in which the report is made.")] = Path("report"),
    title: Annotated[str, typer.Option(help="The heading of the report.")] = "Comparison",
    mixed: Annotated[
        Literal["refuse", "leave-out", "sections"],
        typer.Option(
            help="Runs of different data or target: refuse them, leave out all but the most numerous, or give each "
            "setting a section of its own."
        ),
    ] = "refuse",
) -> None:
    """Make a report of runs: a page to look at, figures for print, tables in Markdown and LaTeX.

    Example: fedadmm report runs -o report
    """
    with _quick_import():
        from fedadmm.report.page import write_report  # imports matplotlib

    gathered = gather_runs(runs)
    groups = by_setting(gathered.runs)
    left_out = list(gathered.left_out)
    if len(groups) > 1 and mixed != "sections":
        strangers = [f"{run.path} has {differences(run, groups[0][0])}" for group in groups[1:] for run in group]
        if mixed == "refuse":
            raise InputError(
                "these runs do not belong with the others; add --mixed leave-out to go on without them, or "
                "--mixed sections to give each setting a section:\n" + "\n".join(strangers)
            )
        groups, left_out = groups[:1], [*left_out, *strangers]
    tell_left_out(left_out)
    page = write_report(sections_of(groups), out, title=title)
    print(f"Report: {page}")  # without rich, which takes as long to import as the page to make


def tell_left_out(sentences: Collection[str]) -> None:
    """Name the folders that were left out."""
    if not sentences:
        return
    from fedadmm.cli.console import err, say

    for sentence in sentences:
        say(f"Left out: {sentence}", to=err)


@contextmanager
def _quick_import() -> Iterator[None]:
    """Let matplotlib come without its axes in 3D, and no garbage be looked for meanwhile: a fifth of its import."""
    unwanted = "mpl_toolkits.mplot3d"
    loaded = unwanted in sys.modules
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Unable to import Axes3D")
            if not loaded:
                sys.modules[unwanted] = None  # type: ignore[assignment]  # which cannot be imported, Python says
            yield
    finally:
        if not loaded:
            del sys.modules[unwanted]
        gc.enable()
