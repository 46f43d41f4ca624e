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
    columns = list(dict.fromkeys(column for column, _ in theirs))
    rows = []
    for method in dict.fromkeys(method for _, method in theirs):
        cells = {column: _cell(ours.get((column, method)), theirs[column, method]) for column in columns}
        if any(cells.values()):
            rows.append({"method": method} | cells)
    return markdown(rows)


def _cell(ours: str | None, theirs: str | None) -> str:
    return f"{ours or ''} ({theirs})".strip() if theirs else ours or ""
