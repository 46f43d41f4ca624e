"""The command line: run, compare, list, show; the other commands are in files of their own."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from fedadmm import __version__
from fedadmm.algorithms import ALGORITHMS
from fedadmm.cli import certify, convex, data, federation, report, reproduce, state, status, tune
from fedadmm.cli.ending import tell
from fedadmm.cli.options import (
    Algorithms,
    Changes,
    DataDir,
    LogTo,
    Out,
    PlanArgument,
    Rounds,
    Seed,
    experiment_of,
    experiments_of,
    plan_named,
)
from fedadmm.cli.progress import Interruption, StoppedAtOnce, run_with_progress
from fedadmm.config.plans import preset_descriptions
from fedadmm.core.errors import InputError
from fedadmm.report.gather import list_runs
from fedadmm.report.methods import methods_of
from fedadmm.report.runs import read_run
from fedadmm.report.section import Section
from fedadmm.report.table import comparison_markdown, comparison_table
from fedadmm.runs.sinks import sinks_from

app = typer.Typer(
    help="Federated learning with FedADMM and its peers. Start with: fedadmm run digits",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(data.app, name="data")
app.add_typer(federation.app, name="federation")
app.command("convex")(convex.convex_command)
app.command("tune")(tune.tune_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("check")(state.check_command)
app.command("certify")(certify.certify_command)
app.command("export")(state.export_command)
app.command("report")(report.report_command)
console = Console()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command("run")
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
    experiment = experiment_of(plan, variant=variant, changes=changes, rounds=rounds, seed=seed)
    sinks, interruption = sinks_from(log_to), Interruption()
    ended = run_with_progress(experiment, out=out, data_dir=data_dir, interruption=interruption, sinks=sinks)
    tell(ended)
    if ended.status != "finished":
        raise typer.Exit(1 if ended.status == "diverged" else 130)


@app.command("compare")
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
    # Here, for matplotlib and plotly take a second to import.
    from fedadmm.report.axes import BYTES, ROUNDS, SIMULATED, axes_of
    from fedadmm.report.figures import accuracy_figure, save_figure
    from fedadmm.report.page import write_page

    experiments = experiments_of(plan, algorithms, changes=changes, rounds=rounds, seed=seed)
    sinks, interruption = sinks_from(log_to), Interruption()
    folders = []
    for experiment in experiments:
        ended = run_with_progress(experiment, out=out, data_dir=data_dir, interruption=interruption, sinks=sinks)
        folders.append(ended.folder.path)
        if ended.status == "interrupted":
            tell(ended)
            raise typer.Exit(130)
    runs = [read_run(folder).first(experiments[0].rounds) for folder in folders]
    first = experiments[0]
    target = (
        "" if first.target is None else f"; rounds and upload to reach {first.metric or 'accuracy'} {first.target:g}"
    )
    heading = f"{first.data.name}, {first.data.partition}, {first.rounds} rounds"
    title = f"{heading}{target}"
    console.print(comparison_table(runs, title=title))
    remark = plan_named(plan).remark.strip() if algorithms is None else ""
    if remark:
        console.print(remark, highlight=False)
    markdown, picture = out / f"{first.name}.md", out / f"{first.name}.png"
    markdown.write_text(comparison_markdown(runs))
    methods = methods_of(runs)
    axes = (ROUNDS, SIMULATED if SIMULATED in axes_of(methods) else BYTES)
    figure = accuracy_figure(methods, title=title, axes=axes, width=12)
    save_figure(figure, picture)
    heading = heading.removeprefix(f"{first.name}, ")  # the page's own says the name
    page = write_page([Section(heading, runs, remark)], out / "report.html", title=first.name)
    console.print(
        f"Figure: {picture}\nTable:  {markdown}\nRuns:   {out}\nReport: {page}", soft_wrap=True, highlight=False
    )


@app.command("list")
def list_command(out: Out = Path("runs")) -> None:
    """List the presets, the algorithms, the paper's tables and figures with their cost, and the runs in a folder."""
    presets = Table(title="Presets: fedadmm run PRESET", title_justify="left")
    presets.add_column("preset", no_wrap=True)
    presets.add_column("what")
    for name, description in preset_descriptions().items():
        presets.add_row(name, description)
    console.print(presets)
    console.print(f"algorithms: {', '.join(ALGORITHMS)}")
    console.print(status.presets_table())
    runs, left_out = list_runs(out)
    report.tell_left_out(left_out)
    if not runs:
        console.print(f"runs:       none in {out}")
        return
    table = Table(title=f"Runs in {out}", title_justify="left")
    for column in ("run", "rounds", "best", "status"):
        table.add_column(column, overflow="fold")
    for run in runs:
        best = methods_of([run])[0].best
        rounds = f"{len(run.rounds)}/{run.experiment['rounds']}"
        table.add_row(
            run.path.name, rounds, "-" if best is None else f"{run.metric.key} {best.text(run.metric)}", run.status
        )
    console.print(table)


@app.command("show")
def show_command(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/digits-fedadmm-0123456789.")],
) -> None:
    """Show a run: its experiment, its rounds in short, what it reached."""
    shown = read_run(run)
    console.print((run / "experiment.toml").read_text(), highlight=False, markup=False)
    table = Table(title="Rounds", title_justify="left")
    columns = ["round", shown.metric.key, "loss", "client_loss", "steps", "bytes_up", "seconds"]
    columns += ["simulated_seconds"] if shown.has_clock else []
    for column in columns:
        table.add_column(column, justify="right")
    step = max(1, len(shown.rounds) // 15)
    for record in shown.rounds[::-1][::step][::-1]:
        table.add_row(*("-" if record.get(c) is None else f"{record[c]:.4g}" for c in columns))
    console.print(table)
    if shown.rounds:
        until = "" if shown.target is None else " to the target"
        title = f"Outcome: rounds and upload{until}, final and best {shown.metric.key}"
        console.print(comparison_table([shown], title=title))


def main() -> None:
    """Run the command line: a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except InputError as error:
        _fail(str(error), code=2)
    except StoppedAtOnce as stop:
        _fail("stopped at once; the same command goes on from the last whole round", code=stop.code)


def _fail(sentence: str, *, code: int) -> NoReturn:
    Console(stderr=True).print(f"fedadmm: {sentence}", soft_wrap=True, markup=False, highlight=False)
    sys.exit(code)
