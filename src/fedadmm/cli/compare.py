"""The command that runs several methods and compares them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.arguments import experiments_of, plan_named
from fedadmm.cli.console import say
from fedadmm.cli.options import Algorithms, Changes, DataDir, LogTo, Out, PlanArgument, Rounds, Seed
from fedadmm.cli.progress import CommandSession
from fedadmm.cli.show import show_comparison
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import parse_changes
from fedadmm.report.runs import RunData, by_setting, gather_runs, sections_of
from fedadmm.runs.tuning import as_tuned


def compare_command(
    plan: PlanArgument,
    algorithms: Algorithms = None,
    changes: Changes = None,
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from the experiment's own on.")] = 1,
    tuned: Annotated[bool, typer.Option("--tuned", help="Take the values that `fedadmm tune` wrote to OUT.")] = False,
    out: Out = Path("runs"),
    data_dir: DataDir = None,
    log_to: LogTo = "",
) -> None:
    """Run several methods on the same clients, batches and initial model, and compare them.

    With --seeds 5 every method is run five times: the table has means and spreads, the curves have bands, and paired
    tests say whether the best differs from each other method by more than noise.

    Example: fedadmm compare digits --algorithms fedadmm,fedavg,feddyn --seeds 5
    """
    firsts = experiments_of(plan, algorithms, changes=changes, rounds=rounds, seed=seed)
    if tuned:
        firsts = as_tuned(firsts, out, changes=parse_changes(changes or []))
    from fedadmm.api.comparison import compared  # imports torch, which a mistake has no need of

    comparison = compared(firsts, seeds=seeds, run_all=CommandSession(out, data_dir, log_to).run_all)
    remark = plan_named(plan).remark.strip() if algorithms is None else ""
    as_planned = algorithms is None and not changes and not tuned and seed is None and seeds == 1
    stem = firsts[0].name if as_planned else _stem(firsts, comparison.runs)
    show_comparison(comparison.runs, title=comparison.title)
    for sentence in filter(None, (remark, comparison.noise)):
        say(sentence)
    picture, table, page = comparison.write(out, stem=stem, remark=remark)
    whole = _write_page_of_all(out)
    say(f"Figure: {picture}\nTable:  {table}\nPage:   {page}\nReport: {whole} (all runs in {out})")


def _write_page_of_all(out: Path) -> Path:
    """Write the page of all runs in a folder."""
    from fedadmm.report.page import write_page  # imports matplotlib

    everything = sections_of(by_setting(gather_runs([out]).runs))
    return write_page(everything, out / "report.html", title=f"All runs in {out.name or out}")


def _stem(experiments: Sequence[Experiment], runs: Sequence[RunData]) -> str:
    """Return a name for the files of a comparison that no other comparison has."""
    labels = [experiment.method.rpartition(":")[2] for experiment in experiments]
    methods = labels if len(labels) <= 3 else [f"{len(labels)}-methods"]
    digest = hashlib.sha256(" ".join(sorted(run.path.name for run in runs)).encode()).hexdigest()[:6]
    return "-".join([experiments[0].name, *methods, digest])
