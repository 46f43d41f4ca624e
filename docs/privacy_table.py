"""The table and the picture of PRIVACY.md, from results/."""

from pathlib import Path

from fedadmm.report.figures import epsilon_figure, save_figure
from fedadmm.report.methods import Estimate, estimate, methods_of
from fedadmm.report.runs import RunData
from fedadmm.report.table import markdown
from fedadmm.studies.campaign import Places, jobs_of, paper_report
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import table_of

NAMES = {"fedavg": "FedAvg", "feddyn": "FedDyn", "fedadmm": "FedADMM", "fast_fedadmm": "fast FedADMM, the default"}
COLUMNS = tuple(table_of("privacy.toml")["variants"])
Runs = list[RunData]  # one for each seed
Best = dict[tuple[str, str], Runs]  # by column and method, at its better learning rate


def best_runs(results: Path) -> Best:
    """Return the finished runs of the study, of each method in each column those with the best last accuracy."""
    jobs = jobs_of(PAPER["privacy"], places=Places(results, results), found={}, size="paper")
    best: Best = {}
    for section in paper_report(PAPER["privacy"], jobs, results=results):
        rates: dict[str, Runs] = {}
        for run in section.runs:
            rates.setdefault(run.label, []).append(run)
        for label, runs in rates.items():
            key = section.title, label.rpartition("-")[0]
            if key not in best or _last(runs).mean > _last(best[key]).mean:
                best[key] = runs
    return best


def _last(runs: Runs) -> Estimate:
    found = estimate([run.known_scores[-1] for run in runs])
    assert found is not None
    return found


def table(best: Best) -> str:
    """Return the last accuracy of each method, and at which learning rate; what is not run yet is a dash."""
    if not best:
        return "No run yet.\n"
    rows = []
    for method, name in NAMES.items():
        cells = {column: _text(best.get((column, method), [])) for column in COLUMNS}
        rows.append({"last accuracy (learning rate)": name, **cells})
    return markdown(rows)


def _text(runs: Runs) -> str:
    return f"{mean_text(_last(runs), digits=3)} ({runs[0].label.rpartition('-')[2]})" if runs else "-"


def mean_text(found: Estimate, *, digits: int) -> str:
    """Return a mean over seeds and, of several, their standard deviation."""
    spread = "" if found.spread is None else f" ± {found.spread:.{digits}f}"
    return f"{found.mean:.{digits}f}{spread}"


def draw(best: Best, path: Path) -> None:
    """Draw what the rounds cost, and what accuracy they reached for that, at the largest epsilon."""
    runs = [run for (column, _), found in best.items() if column == "epsilon 8" for run in found]
    save_figure(epsilon_figure(methods_of(runs), title="MNIST, 1,000 clients, epsilon 8 at delta 1e-4"), path)
