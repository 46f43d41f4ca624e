"""The report as one HTML file that needs nothing else: no server, no network, no file beside it."""

import json
import math
import re
from collections.abc import Sequence
from contextlib import ExitStack
from html import escape
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import tomli_w
from matplotlib.figure import Figure

from fedadmm.core.errors import InputError
from fedadmm.core.metrics import Metric
from fedadmm.report.figures import accuracy_figure, columns_figure, save_figure, saved_beside
from fedadmm.report.methods import ROUNDS, Array, MethodRuns, axes_of, methods_in, much_longer
from fedadmm.report.paired import paired_sentence
from fedadmm.report.runs import Section
from fedadmm.report.styles import Style
from fedadmm.report.table import TEXT_COLUMNS, TIME, are_fastest, family_sentence, latex, markdown, report_rows


def write_page(sections: Sequence[Section], path: Path, *, title: str) -> Path:
    """Write the page and return its path."""
    methods = methods_in([section.runs for section in sections])
    blocks = [_section(*pair, number) for number, pair in enumerate(zip(sections, methods, strict=True))]
    text = Template(_file("page.html")).substitute(
        title=escape(title),
        style=_file("page.css"),
        script=_file("page.js"),
        plotly=_plotly(),
        contents=_contents(sections) if len(sections) > 1 else "",
        sections="\n".join(blocks),
        data=_json([_data(inside) for inside in methods]),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _section(section: Section, methods: Sequence[MethodRuns], number: int) -> str:
    title, remark = escape(section.title), ""
    if section.remark.strip():
        remark = f'<p class="remark">{escape(section.remark.strip())}</p>'
    if not methods:
        return f'<section id="section-{number}"><h2>{title}</h2>{remark}<p>No runs yet.</p></section>'
    return Template(_file("section.html")).substitute(
        number=number,
        title=title,
        remark=remark,
        axes="\n".join(
            f'<label><input type="radio" name="axis-{number}" value="{axis.key}"{" checked" * (axis is ROUNDS)}>'
            f"{axis.short}</label>"
            for axis in axes_of(methods)
        ),
        methods="\n".join(
            f'<label><input type="checkbox" checked autocomplete="off">{_swatch(method.style)}'
            f"<span>{_breakable(method.name)}</span></label>"
            for method in methods
        ),
        metric=escape(methods[0].metric.title.capitalize()),
        table=_table(methods),
        notes=_notes(methods),
    )


def _table(methods: Sequence[MethodRuns]) -> str:
    rows = report_rows(methods)
    head = "".join(f'<th scope="col"{_aligned(key)}>{escape(_heading(key, methods[0].metric))}</th>' for key in rows[0])
    lines = []
    for number, (method, row, leads) in enumerate(zip(methods, rows, are_fastest(methods), strict=True)):
        name, *rest = row.items()
        inside = f"{_swatch(method.style)}<span>{_breakable(name[1])}</span>"
        button = f'<button type="button" data-curve="{number}">{inside}</button>'
        cells = "".join(f"<td{_aligned(key)}>{escape(value)}</td>" for key, value in rest)
        mark = ' class="fastest"' if leads else ""
        lines.append(f'<tr{mark}><th scope="row" class="text">{button}</th>{cells}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _notes(methods: Sequence[MethodRuns]) -> str:
    """Return what a reader must know to read the table right, and no more."""
    sentences = [sentence for sentence in (family_sentence(methods), paired_sentence(methods)) if sentence]
    finding = "".join(f'<p class="finding">{escape(sentence)}</p>' for sentence in sentences)
    target, longest = methods[0].runs[0].target, much_longer(methods)
    runs = [run for method in methods for run in method.runs]
    many_seeds = len(runs) > len(methods)
    where = dict.fromkeys(m.runs[0].published.where for m in methods if m.runs[0].published is not None)
    notes = {
        "Press a method's name, or its curve, to see the whole experiment.": True,
        f"Rounds and upload: until the {methods[0].metric.title} reached {target or 0:g}; N+ means not within the N "
        "rounds that the run, or the shortest of its seeds, lasted.": target is not None,
        "Mean ± standard deviation over seeds, which is also the band around a curve. (2/3): two of three seeds "
        "arrived and the mean is over those; a method with a miss is not compared with the others.": many_seeds,
        "Where seeds stopped at different rounds, a curve goes on with those that are left; a seed that diverged keeps "
        "its last score.": any(len({len(run.rounds) for run in method.runs}) > 1 for method in methods),
        f"{longest and longest.name} goes on beyond the chart: a double click shows all of it.": longest is not None,
        "Seconds are as measured, beside whatever else the machine did.": True,
        "Refused: updates that were not finite, which leave no trace; where a whole round is refused, the run ends as "
        "diverged.": any(record.refused for run in runs for record in run.rounds),
        "Collapsed: the run ended worse than after its first round.": any(run.status == "collapsed" for run in runs),
        f"Paper: rounds to the target in {'; '.join(where)}.": bool(where),
    }
    told = "".join(f"<p>{escape(note)}</p>" for note, holds in notes.items() if holds)
    return f'{finding}<div class="notes">{told}</div>'


def _data(methods: Sequence[MethodRuns]) -> dict[str, Any]:
    if not methods:
        return {"target": None, "metric": None, "curves": [], "longest": None}
    metric, longest = methods[0].metric, much_longer(methods)
    highest = metric.highest if math.isfinite(metric.highest) else None
    return {
        "target": methods[0].runs[0].target,
        "metric": {"name": metric.name, "title": metric.title, "log_scale": metric.log_scale, "highest": highest},
        "curves": [_curve(method) for method in methods],
        "longest": None if longest is None else methods.index(longest),
    }


def _curve(method: MethodRuns) -> dict[str, Any]:
    """Return what the page's script draws, in as many digits as can be seen."""
    curve = method.curve
    experiment = {key: value for key, value in method.runs[0].experiment.items() if key != "seed"}
    seeds = ", ".join(f"{run.experiment.get('seed', '?')} ({run.path.name})" for run in method.runs)
    return {
        "name": method.name,
        "colour": method.style.colour,
        "dash": ",".join(f"{length}px" for length in method.style.dash) or "solid",
        "x": {axis.key: _rounded(axis.values(method)) for axis in axes_of([method])},
        "y": _seen(curve.mean, method.metric),
        "spread": None if curve.spread is None else _seen(curve.spread, method.metric),
        "seeds": [int(number) for number in curve.seeds],
        "of": len(method.runs),
        "runs": f"seed {seeds}" if len(method.runs) == 1 else f"seeds {seeds}",
        "experiment": tomli_w.dumps(experiment),
    }


def _seen(scores: Array, metric: Metric) -> list[float]:
    return [float(f"{score:{metric.digits_drawn}}") for score in scores]


def _rounded(values: Array) -> list[float]:
    """Return numbers to five significant digits, whole ones without a point."""
    rounded = [float(np.format_float_positional(v, precision=5, fractional=False)) for v in values]
    return [int(value) if value.is_integer() else value for value in rounded]


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(f'<li><a href="#section-{n}">{escape(s.title)}</a></li>' for n, s in enumerate(sections))
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def _swatch(style: Style) -> str:
    dash = f' stroke-dasharray="{",".join(map(str, style.dash))}"' if style.dash else ""
    return (
        '<svg width="30" height="6" aria-hidden="true" focusable="false">'
        f'<line x1="0" y1="3" x2="30" y2="3" stroke="{style.colour}" stroke-width="3"{dash}/></svg>'
    )


def _breakable(name: str) -> str:
    """Return a name that a narrow screen may break after an underscore."""
    return escape(name).replace("_", "_<wbr>")


def _heading(key: str, metric: Metric) -> str:
    known = {key: f"{key} to target" for key in ("rounds", "upload", TIME)} | {"final": f"final {metric.name}"}
    return known.get(key, key)


def _aligned(key: str) -> str:
    return ' class="text"' if key in TEXT_COLUMNS else ""


def _json(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return (resources.files("fedadmm.report") / "page_files" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Return plotly's script, without an import of the package: it is all that a page needs of it."""
    package = find_spec("plotly")
    assert package is not None
    assert package.origin is not None
    return (Path(package.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def write_report(sections: Sequence[Section], out: Path, *, title: str) -> Path:
    """Write report.html, tables.md, tables.tex, figures/*.pdf and *.png into a folder; return the page's path."""
    try:
        return _write(sections, out, title=title)
    except OSError as error:
        raise InputError(f"cannot write {error.filename}: {error.strerror}; give another folder") from error


def _write(sections: Sequence[Section], out: Path, *, title: str) -> Path:
    with ExitStack() as beside:
        _write_for_print(sections, out, title=title, beside=beside)
        return write_page(sections, out / "report.html", title=title)


def _write_for_print(sections: Sequence[Section], out: Path, *, title: str, beside: ExitStack) -> None:
    words, tex = [f"# {title}\n"], []
    columns: dict[str, list[MethodRuns]] = {}
    by_section = methods_in([section.runs for section in sections])
    for number, (section, methods) in enumerate(zip(sections, by_section, strict=True), start=1):
        if not methods:
            continue
        rows = report_rows(methods)
        words += [f"\n## {section.title}\n\n", markdown(rows)]
        words += [f"\n{sentence}\n" for sentence in (family_sentence(methods), paired_sentence(methods)) if sentence]
        tex.append(f"% {' '.join(section.title.split())}\n{latex(rows)}")
        stem = f"{number:02d}-{_slug(section.title)}"
        _save(accuracy_figure(methods, title=section.title), out / "figures" / stem, beside)
        columns[section.title] = methods
    if len(columns) > 1 and len({methods[0].metric for methods in columns.values()}) == 1:
        _save(columns_figure(columns), out / "figures" / "all", beside)
    (out / "tables.md").write_text("".join(words), encoding="utf-8")
    (out / "tables.tex").write_text("\n".join(tex), encoding="utf-8")


def _save(figure: Figure, stem: Path, beside: ExitStack) -> None:
    beside.enter_context(saved_beside(figure, stem.with_suffix(".pdf")))
    save_figure(figure, stem.with_suffix(".png"))


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "runs"
