"""What a report of a study is made of: its finished runs, and what the paper prints for them."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fedadmm.report.runs import read_run
from fedadmm.report.section import Published, PublishedFor, Section
from fedadmm.studies.campaign import Job
from fedadmm.studies.paper.study import Study


class PaperReport(NamedTuple):
    """The finished runs of a study, a section for each column, and what the paper prints for them."""

    sections: list[Section]
    published: PublishedFor


def paper_report(study: Study, jobs: Iterable[Job], *, results: Path) -> PaperReport:
    """Return what a report of a study is made of; columns without a finished run are left out."""
    sections: dict[str, Section] = {}
    published: dict[str, Published] = {}
    for job in jobs:
        folder = results / job.experiment.folder_name
        if not folder.exists():
            continue
        column, rounds = job.paper_run.column, job.paper_run.rounds
        sections.setdefault(column, Section(column, [])).runs.append(read_run(folder))
        if rounds is not None:
            where = f"{study.title.partition(':')[0]}, {column}"
            published[folder.name] = Published(where, int(rounds) if rounds.isdigit() else None)
    return PaperReport(list(sections.values()), lambda run: published.get(run.path.name))
