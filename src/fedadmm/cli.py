"""The command line: run, compare, list, show, data."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from fedadmm import __version__, cli_data, cli_federation, cli_state
from fedadmm.algorithms import ALGORITHMS
from fedadmm.cli_progress import Interruption, StoppedAtOnce, run_with_progress
from fedadmm.core.errors import InputError
from fedadmm.experiments.experiment import Experiment
from fedadmm.experiments.files import load_plan, parse_changes, preset_names
from fedadmm.experiments.records import Record
from fedadmm.experiments.runner import Run
from fedadmm.experiments.tuning import PAPER_RATES, best, trials_of
from fedadmm.report.runs import find_runs, read_run
from fedadmm.report.table import comparison_markdown, comparison_table

app = typer.Typer(
    help="Federated learning with FedADMM and its peers. Start with: fedadmm run digits",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_federation.app, name="federation")
app.command("check")(cli_state.check_command)
app.command("export")(cli_state.export_command)
console = Console()

PlanArgument = Annotated[str, typer.Argument(help="An experiment's TOML file, or the name of a preset.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value: --set rounds=10 --set algorithm.rho=0.1 (repeatable)."),
]
Algorithms = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated variants of the file, or algorithms. [default: all of the file's variants]"
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds; more than are there goes on from there.")]
Seed = Annotated[int | None, typer.Option(help="The seed of everything random.")]
Out = Annotated[Path, typer.Option(help="Folder in which the run folder is made.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data files (see: fedadmm data list).")]


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command("run")
def run_command(
    plan: PlanArgument,
    changes: Changes = None,
    variant: Annotated[
        str | None, typer.Option(help="A variant of the file, or an algorithm at its defaults.")
    ] = None,
    rounds: Rounds = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
) -> None:
    """Run an experiment, or go on with it where it stopped.

    Example: fedadmm run digits --set algorithm.name=feddyn --rounds 20
    """
    experiment = _experiment(plan, variant=variant, changes=changes, rounds=rounds, seed=seed)
    interruption = Interruption()
    ended = run_with_progress(experiment, out=out, data_dir=data_dir, interruption=interruption)
    _tell(ended)
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
) -> None:
    """Run several methods on the same clients, batches and initial model, and compare them.

    Example: fedadmm compare digits --algorithms fedadmm,fedavg,feddyn
    """
    # Here, for matplotlib takes a second to import.
    from fedadmm.report.figures import accuracy_figure, save_figure

    experiments = _experiments(plan, algorithms, changes=changes, rounds=rounds, seed=seed)
    interruption = Interruption()
    folders = []
    for experiment in experiments:
        ended = run_with_progress(experiment, out=out, data_dir=data_dir, interruption=interruption)
        folders.append(ended.folder.path)
        if ended.status == "interrupted":
            _tell(ended)
            raise typer.Exit(130)
    runs = [read_run(folder).first(experiments[0].rounds) for folder in folders]
    first = experiments[0]
    target = "" if first.target is None else f"; rounds and upload to reach accuracy {first.target:g}"
    title = f"{first.data.name}, {first.data.partition}, {first.rounds} rounds{target}"
    console.print(comparison_table(runs, title=title))
    if algorithms is None and (remark := load_plan(plan).remark.strip()):
        console.print(remark, highlight=False)
    markdown = out / f"{first.name}.md"
    markdown.write_text(comparison_markdown(runs))
    picture = save_figure(accuracy_figure(runs, title=title), out / f"{first.name}.png")
    console.print(f"Figure: {picture}\nTable:  {markdown}\nRuns:   {out}", soft_wrap=True, highlight=False)


@app.command("tune")
def tune_command(
    plan: PlanArgument,
    algorithms: Algorithms = None,
    rates: Annotated[str, typer.Option(help="Comma-separated learning rates.")] = ",".join(
        map(str, PAPER_RATES)
    ),
    seeds: Annotated[int, typer.Option(help="Number of seeds, from the experiment's own on.")] = 3,
    changes: Changes = None,
    rounds: Rounds = None,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
) -> None:
    """Find each method's best learning rate on held-out training examples, never on the test examples.

    Example: fedadmm tune digits --algorithms fedavg,feddyn --rounds 30
    """
    experiments = _experiments(plan, algorithms, changes=changes, rounds=rounds, seed=None)
    grid = _numbers(rates)
    if seeds < 1:
        raise InputError(f"seeds={seeds} is out of range; use a whole number from 1 on")
    interruption = Interruption()

    def run(experiment: Experiment) -> tuple[list[Record], bool]:
        ended = run_with_progress(experiment, out=out, data_dir=data_dir, interruption=interruption)
        if ended.status == "interrupted":
            raise StoppedAtOnce
        return ended.history, ended.status == "diverged"

    table = Table(
        title=f"{experiments[0].name}: mean over {seeds} seeds, on held-out examples", title_justify="left"
    )
    for column in ("method", "rate", "rounds to target", "final accuracy", "best"):
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for experiment in experiments:
        first = experiment.seed
        trials = trials_of(experiment, rates=grid, seeds=range(first, first + seeds), run=run)
        for trial in trials:
            arrival = f"{trial.rounds_to_target:.1f}"
            mark = "*" if trial == best(trials) else ""
            table.add_row(
                trial.label, f"{trial.learning_rate:g}", arrival, f"{trial.final_accuracy:.3f}", mark
            )
    console.print(table)
    console.print(f"A run that never arrived counts as {2 * experiments[0].rounds} rounds.")


@app.command("list")
def list_command(out: Out = Path("runs")) -> None:
    """List the presets, the algorithms, and the runs in a folder."""
    console.print(f"presets:    {', '.join(preset_names())}")
    console.print(f"algorithms: {', '.join(ALGORITHMS)}")
    runs = find_runs(out) if out.is_dir() else []
    if not runs:
        console.print(f"runs:       none in {out}")
        return
    table = Table(title=f"Runs in {out}", title_justify="left")
    for column in ("run", "rounds", "best accuracy", "status"):
        table.add_column(column, overflow="fold")
    for run in runs:
        best = max((r["accuracy"] for r in run.rounds if r["accuracy"] is not None), default=None)
        rounds = f"{len(run.rounds)}/{run.experiment['rounds']}"
        table.add_row(run.path.name, rounds, "-" if best is None else f"{best:.3f}", run.status)
    console.print(table)


@app.command("show")
def show_command(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/digits-fedadmm-0123456789.")],
) -> None:
    """Show a run: its experiment, its rounds in short, what it reached."""
    data = read_run(run)
    console.print((run / "experiment.toml").read_text(), highlight=False, markup=False)
    table = Table(title="Rounds", title_justify="left")
    columns = ("round", "accuracy", "loss", "client_loss", "steps", "bytes_up", "seconds")
    for column in columns:
        table.add_column(column, justify="right")
    step = max(1, len(data.rounds) // 15)
    for record in data.rounds[::-1][::step][::-1]:
        table.add_row(*("-" if record[c] is None else f"{record[c]:.4g}" for c in columns))
    console.print(table)
    if data.rounds:
        console.print(
            comparison_table(
                [data], title="Outcome: rounds and upload to the target, final and best accuracy"
            )
        )


def _experiments(
    plan: str, algorithms: str | None, *, changes: list[str] | None, rounds: int | None, seed: int | None
) -> list[Experiment]:
    names = (
        [name.strip() for name in algorithms.split(",")]
        if algorithms
        else load_plan(plan).variants or ALGORITHMS
    )
    return [_experiment(plan, variant=n, changes=changes, rounds=rounds, seed=seed) for n in names]


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"rates={text!r} is no list of numbers; write them as 0.01,0.1") from None


def _experiment(
    plan: str, *, variant: str | None, changes: list[str] | None, rounds: int | None, seed: int | None
) -> Experiment:
    table = parse_changes(changes or [])
    table |= {key: value for key, value in (("rounds", rounds), ("seed", seed)) if value is not None}
    return load_plan(plan).experiment(variant, changes=table)


def _tell(ended: Run) -> None:
    done, wanted, folder = len(ended.history), ended.experiment.rounds, ended.folder.path
    best = max((r.accuracy for r in ended.history if r.accuracy is not None), default=None)
    reached = "" if best is None else f", best accuracy {best:.3f}"
    if ended.status == "diverged":
        console.print(
            f"Diverged in round {done}: no client's update was finite; lower local.learning_rate "
            f"({ended.experiment.local.learning_rate}) or the server's step. {folder}",
            soft_wrap=True,
        )
    elif ended.status == "interrupted":
        console.print(
            f"Stopped after {done} of {wanted} rounds{reached}; the same command goes on from there. {folder}",
            soft_wrap=True,
        )
    elif ended.rounds_before == done:
        console.print(f"All {done} rounds are there already{reached}: {folder}", soft_wrap=True)
    else:
        console.print(f"Finished {done} rounds{reached}: {folder}", soft_wrap=True)


def main() -> None:
    """Run the command line: a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except InputError as error:
        _fail(str(error), code=2)
    except StoppedAtOnce:
        _fail("stopped at once; the same command goes on from the last whole round", code=130)


def _fail(sentence: str, *, code: int) -> NoReturn:
    Console(stderr=True).print(f"fedadmm: {sentence}", soft_wrap=True, markup=False, highlight=False)
    sys.exit(code)
