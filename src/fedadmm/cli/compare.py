"""The command that runs several methods and compares them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.arguments import check_seeds, experiments_of, plan_named
from fedadmm.cli.console import out as console
from fedadmm.cli.console import say
from fedadmm.cli.options import Algorithms, Changes, DataDir, LogTo, Out, PlanArgument, Rounds, Seed
from fedadmm.cli.progress import Session, how_it_ended
from fedadmm.cli.show import show_comparison
from fedadmm.config.experiment import Experiment
from fedadmm.report.runs import RunData, Section, by_setting, gather_runs, section_of
from fedadmm.runs.records import EXIT_CODES


def compare_command(
    plan: PlanArgument,
    algorithms: Algorithms = None,
    changes: Changes = None,
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from the experiment's own on.")] = 1,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
    log_to: LogTo = "",
) -> None:
    """Run several methods on the same clients, batches and initial model, and compare them.

    With --seeds 5 every method is run five times: the table has means and spreads, the curves have bands, and a paired
    test says whether the two best differ by more than noise.

    Example: fedadmm compare digits --algorithms fedadmm,fedavg,feddyn --seeds 5
    """
    check_seeds(seeds)
    firsts = experiments_of(plan, algorithms, changes=changes, rounds=rounds, seed=seed)
    experiments = [first.replace(seed=first.seed + more) for more in range(seeds) for first in firsts]
    session = Session(out, data_dir, log_to)
    runs = []
    for experiment in experiments:
        ended = session.run(experiment, values=f"seed {experiment.seed}" if seeds > 1 else "")
        if ended.status == "stopped":
            say(how_it_ended(ended))
            raise typer.Exit(EXIT_CODES[ended.status])
        runs.append(ended.run_data.first(experiment.rounds))
    remark = plan_named(plan).remark.strip() if algorithms is None else ""
    as_planned = algorithms is None and not changes and seed is None and seeds == 1
    stem = firsts[0].name if as_planned else _stem(firsts, runs)
    _show_comparison(firsts[0], runs, remark=remark, out=out, stem=stem)


def _stem(experiments: Sequence[Experiment], runs: Sequence[RunData]) -> str:
    """Return a name for the files of a comparison that no other comparison has."""
    labels = [experiment.method.rpartition(":")[2] for experiment in experiments]
    methods = labels if len(labels) <= 3 else [f"{len(labels)}-methods"]
    digest = hashlib.sha256(" ".join(sorted(run.path.name for run in runs)).encode()).hexdigest()[:6]
    return "-".join([experiments[0].name, *methods, digest])


def _show_comparison(first: Experiment, runs: Sequence[RunData], *, remark: str, out: Path, stem: str) -> None:
    """Print the table of a comparison, and write it, its figure and its page beside the runs, and a page of all."""
    # Imported here because matplotlib and plotly take a second.
    from fedadmm.report.figures import accuracy_figure, save_figure
    from fedadmm.report.methods import BYTES, ROUNDS, SIMULATED, axes_of, by_arrival, methods_of
    from fedadmm.report.page import write_page
    from fedadmm.report.paired import paired_sentence
    from fedadmm.report.table import comparison_rows, markdown

    heading = f"{first.data.name}, {first.data.partition}, {first.rounds} rounds"
    title = heading
    if first.target is not None:
        title += f"; rounds and upload to reach {runs[0].metric.name} {first.target:g}"
    show_comparison(runs, title=title)
    if remark:
        console.print(remark, highlight=False)
    methods = by_arrival(methods_of(runs))
    noise = paired_sentence(methods)
    if noise:
        say(noise)
    table, picture = out / f"{stem}.md", out / f"{stem}.png"
    table.write_text(markdown(comparison_rows(runs)) + (f"\n{noise}\n" if noise else ""))
    axes = (ROUNDS, SIMULATED if SIMULATED in axes_of(methods) else BYTES)
    save_figure(accuracy_figure(methods, title=title, axes=axes, width=12), picture)
    section = Section(heading.removeprefix(f"{first.name}, "), list(runs), remark)  # the page's own says the name
    page = write_page([section], out / f"{stem}.html", title=first.name)
    everything = [section_of(group) for group in by_setting(gather_runs([out]).runs)]
    whole = write_page(everything, out / "report.html", title=f"All runs in {out.name or out}")
    say(f"Figure: {picture}\nTable:  {table}\nPage:   {page}\nReport: {whole} (all runs in {out})")
