"""The command that runs several methods and compares them."""

from collections.abc import Sequence
from pathlib import Path

import typer

from fedadmm.cli.arguments import experiments_of, plan_named
from fedadmm.cli.console import out as console
from fedadmm.cli.console import say
from fedadmm.cli.options import Algorithms, Changes, DataDir, LogTo, Out, PlanArgument, Rounds, Seed
from fedadmm.cli.progress import Session, how_it_ended
from fedadmm.cli.show import show_comparison
from fedadmm.config.experiment import Experiment
from fedadmm.report.runs import RunData, read_run
from fedadmm.runs.records import EXIT_CODES
from fedadmm.runs.sinks import sinks_from


def compare_command(
    plan: PlanArgument,
    algorithms: Algorithms = None,
    changes: Changes = None,
    rounds: Rounds = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
    log_to: LogTo = "",
) -> None:
    """Run several methods on the same clients, batches and initial model, and compare them.

    Example: fedadmm compare digits --algorithms fedadmm,fedavg,feddyn
    """
    experiments = experiments_of(plan, algorithms, changes=changes, rounds=rounds, seed=seed)
    session = Session(out, data_dir, sinks_from(log_to))
    runs = []
    for experiment in experiments:
        ended = session.run(experiment)
        if ended.status == "stopped":
            say(how_it_ended(ended))
            raise typer.Exit(EXIT_CODES[ended.status])
        runs.append(read_run(ended.folder.path).first(experiment.rounds))
    remark = plan_named(plan).remark.strip() if algorithms is None else ""
    _show_comparison(experiments[0], runs, remark=remark, out=out)


def _show_comparison(first: Experiment, runs: Sequence[RunData], *, remark: str, out: Path) -> None:
    """Print the table of a comparison, and write it, its figure and its page beside the runs."""
    # Imported here because matplotlib and plotly take a second.
    from fedadmm.report.figures import accuracy_figure, save_figure
    from fedadmm.report.methods import BYTES, ROUNDS, SIMULATED, axes_of, methods_of
    from fedadmm.report.page import write_page
    from fedadmm.report.runs import Section
    from fedadmm.report.table import comparison_rows, markdown

    heading = f"{first.data.name}, {first.data.partition}, {first.rounds} rounds"
    title = heading
    if first.target is not None:
        title += f"; rounds and upload to reach {runs[0].metric.name} {first.target:g}"
    show_comparison(runs, title=title)
    if remark:
        console.print(remark, highlight=False)
    table, picture = out / f"{first.name}.md", out / f"{first.name}.png"
    table.write_text(markdown(comparison_rows(runs)))
    methods = methods_of(runs)
    axes = (ROUNDS, SIMULATED if SIMULATED in axes_of(methods) else BYTES)
    save_figure(accuracy_figure(methods, title=title, axes=axes, width=12), picture)
    section = Section(heading.removeprefix(f"{first.name}, "), list(runs), remark)  # the page's own says the name
    page = write_page([section], out / "report.html", title=first.name)
    say(f"Figure: {picture}\nTable:  {table}\nRuns:   {out}\nReport: {page}")
