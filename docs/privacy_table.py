"""The table and the picture of PRIVACY.md, from results/."""

from pathlib import Path

from fedadmm.report.figures import epsilon_figure, save_figure
from fedadmm.report.methods import methods_of
from fedadmm.report.runs import RunData
from fedadmm.report.table import markdown
from fedadmm.studies.campaign import Places, jobs_of, paper_report
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import table_of

NAMES = {"fedavg": "FedAvg", "feddyn": "FedDyn", "fedadmm": "FedADMM", "fast_fedadmm": "fast FedADMM, the default"}
COLUMNS = tuple(table_of("privacy.toml")["variants"])
Best = dict[tuple[str, str], RunData]  # by column and method, at its better learning rate


def best_runs(results: Path) -> Best:
    """Return the finished runs of the study, of each method in each column that with the best last accuracy."""
    jobs = jobs_of(PAPER["privacy"], places=Places(results, results), found={}, size="paper")
    best: Best = {}
    for section in paper_report(PAPER["privacy"], jobs, results=results):
        for run in section.runs:
            key = section.title, run.label.rpartition("-")[0]
            if key not in best or run.known_scores[-1] > best[key].known_scores[-1]:
                best[key] = run
    return best


def table(best: Best) -> str:
    """Return the last accuracy of each method, and at which learning rate; what is not run yet is a dash."""
    if not best:
        return "No run yet.\n"
    rows = []
    for method, name in NAMES.items():
        cells = {column: _text(best.get((column, method))) for column in COLUMNS}
        rows.append({"last accuracy (learning rate)": name, **cells})
    return markdown(rows)


def _text(run: RunData | None) -> str:
    return "-" if run is None else f"{run.known_scores[-1]:.3f} ({run.label.rpartition('-')[2]})"


def draw(best: Best, path: Path) -> None:
    """Draw what the rounds cost, and what accuracy they reached for that, at the largest epsilon."""
    runs = [run for (column, _), run in best.items() if column == "epsilon 8"]
    save_figure(epsilon_figure(methods_of(runs), title="MNIST, 1,000 clients, epsilon 8 at delta 1e-4"), path)
