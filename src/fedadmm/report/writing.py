"""A report as files: the page, the figures for print, the tables for other documents."""

import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedadmm.core.errors import InputError
from fedadmm.report.figures import accuracy_figure, columns_figure, save_figure
from fedadmm.report.methods import MethodRuns, methods_in
from fedadmm.report.page import write_page
from fedadmm.report.runs import Section
from fedadmm.report.table import family_sentence, latex, markdown, report_rows


def write_report(sections: Sequence[Section], out: Path, *, title: str) -> Path:
    """Write report.html, tables.md, tables.tex, figures/*.pdf and *.png into a folder; return the page's path."""
    try:
        return _write(sections, out, title=title)
    except OSError as error:
        raise InputError(f"cannot write {error.filename}: {error.strerror}; give another folder") from error


def _write(sections: Sequence[Section], out: Path, *, title: str) -> Path:
    page = write_page(sections, out / "report.html", title=title)
    words, tex = [f"# {title}\n"], []
    columns: dict[str, list[MethodRuns]] = {}
    by_section = methods_in([section.runs for section in sections])
    for number, (section, methods) in enumerate(zip(sections, by_section, strict=True), start=1):
        if not methods:
            continue
        rows = report_rows(methods)
        words += [f"\n## {section.title}\n\n", markdown(rows)]
        if sentence := family_sentence(methods):
            words.append(f"\n{sentence}\n")
        tex.append(f"% {' '.join(section.title.split())}\n{latex(rows)}")
        stem = f"{number:02d}-{_slug(section.title)}"
        _save(accuracy_figure(methods, title=section.title), out, stem)
        columns[section.title] = methods
    if len(columns) > 1 and len({methods[0].metric for methods in columns.values()}) == 1:
        _save(columns_figure(columns), out, "all")
    (out / "tables.md").write_text("".join(words), encoding="utf-8")
    (out / "tables.tex").write_text("\n".join(tex), encoding="utf-8")
    return page


def _save(figure: Figure, out: Path, stem: str) -> None:
    save_figure(figure, out / "figures" / f"{stem}.pdf", out / "figures" / f"{stem}.png")


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "runs"
