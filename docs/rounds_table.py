"""The rounds to the target of a whole study in one table: ours, and the paper's in brackets."""

from pathlib import Path

from fedadmm.report.methods import methods_of
from fedadmm.report.table import markdown, rounds_text
from fedadmm.studies.campaign import Places, jobs_of, paper_report
from fedadmm.studies.paper.study import Study, published_values


def table(study: Study, results: Path) -> str:
    """Return the table in Markdown; in brackets stands what the paper prints."""
    runs = study.runs("paper")
    jobs = jobs_of(study, places=Places(results, results), found=published_values())
    ours = {
        (section.title, method.name): rounds_text(method)
        for section in paper_report(study, jobs, results=results)
        for method in methods_of(section.runs)
    }
    theirs = {(run.column, run.experiment.method): run.rounds for run in runs}
    columns, methods = (list(dict.fromkeys(names)) for names in zip(*theirs, strict=True))
    cells = {pair: _cell(ours.get(pair), rounds) for pair, rounds in theirs.items()}
    shown = [method for method in methods if any(cells[column, method] for column in columns)]
    return markdown([{"": column} | {method: cells[column, method] for method in shown} for column in columns])


def _cell(ours: str | None, theirs: str | None) -> str:
    return f"{ours or ''} ({theirs})".strip() if theirs else ours or ""
