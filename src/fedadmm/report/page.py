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

import tomli_w
from matplotlib.figure import Figure

from fedadmm.core.errors import InputError
from fedadmm.core.metrics import Metric, metric_like
from fedadmm.report.figures import accuracy_figure, columns_figure, epsilon_figure, save_figure, saved_beside
from fedadmm.report.methods import ROUNDS, Array, Curve, MethodRuns, axes_of, by_arrival, methods_in, much_longer
from fedadmm.report.notes import findings, page_notes, table_notes
from fedadmm.report.runs import Section
from fedadmm.report.styles import Style
from fedadmm.report.table import TEXT_COLUMNS, TO_TARGET, are_fastest, latex, markdown, report_rows


def write_page(sections: Sequence[Section], path: Path, *, title: str) -> Path:
    """Write the page and return its path."""
    methods = [by_arrival(inside) for inside in methods_in([section.runs for section in sections])]
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
        metrics="\n".join(
            f'<option value="{escape(metric.name)}">{escape(metric.title)}</option>' for metric in _metrics(methods)
        ),
        axes="\n".join(
            f'<label><input type="radio" name="axis-{number}" value="{key}"{" checked" * (key == ROUNDS.key)}>'
            f"{name}</label>"
            for key, name in _axes(methods).items()
        ),
        keeps_x="" if much_longer(methods) else " checked",
        methods="\n".join(
            f'<label><input type="checkbox" checked autocomplete="off">{_swatch(method.style)}'
            f"<span>{_breakable(method.name)}</span></label>"
            for method in methods
        ),
        metric=escape(methods[0].metric.title.capitalize()),
        table=_table(methods),
        notes=_notes(methods),
    )


def _metrics(methods: Sequence[MethodRuns]) -> list[Metric]:
    """Return all that the curves of a section can show, what the runs are judged by first."""
    judge = methods[0].metric
    names = dict.fromkeys([judge.name, *(name for m in methods for run in m.runs for name in run.score_names)])
    return [judge, *(metric_like(name) for name in names if name != judge.name)]


def _axes(methods: Sequence[MethodRuns]) -> dict[str, str]:
    """Return what the curves can be shown against, by its key: the clients too, where they have scores of their own."""
    of_clients = any(run.client_quantiles for method in methods for run in method.runs)
    return {axis.key: axis.short for axis in axes_of(methods)} | ({"clients": "clients"} if of_clients else {})


def _table(methods: Sequence[MethodRuns]) -> str:
    rows = report_rows(methods)
    head = "".join(f'<th scope="col"{_aligned(key)}>{escape(_heading(key, methods[0]))}</th>' for key in rows[0])
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
    """Return what was found, and what a reader must know to read the table right."""
    finding = "".join(f'<p class="finding">{escape(sentence)}</p>' for sentence in findings(methods))
    told = "".join(f"<p>{escape(note)}</p>" for note in page_notes(methods, of_clients="clients" in _axes(methods)))
    return f'{finding}<div class="notes">{told}</div>'


def _data(methods: Sequence[MethodRuns]) -> dict[str, Any]:
    if not methods:
        return {"target": None, "metrics": {}, "curves": [], "longest": None}
    metrics, longest = _metrics(methods), much_longer(methods)
    return {
        "target": methods[0].runs[0].target,
        "metrics": {metric.name: _described(metric, methods) for metric in metrics},
        "curves": [_curve(method, metrics) for method in methods],
        "longest": None if longest is None else methods.index(longest),
    }


def _described(metric: Metric, methods: Sequence[MethodRuns]) -> dict[str, Any]:
    """Return what the script knows of a metric; an error is how far a score is below the best there can be."""
    scores = [score for method in methods for run in method.runs for score in metric.scores(run.rounds)]
    is_share = not metric.lower_is_better and all(0 <= score <= 1 for score in scores)
    return {
        "title": metric.title,
        "judge": metric == methods[0].metric,
        "lower": metric.lower_is_better,
        "log": metric.log_scale,
        "digits": int(metric.digits[1]),
        "style": metric.digits[2],
        "lowest": metric.lowest if math.isfinite(metric.lowest) else None,
        "highest": metric.highest if math.isfinite(metric.highest) else None,
        "ceiling": 1 if is_share else None,
    }


def _curve(method: MethodRuns, metrics: Sequence[Metric]) -> dict[str, Any]:
    """Return what the page's script draws, in as many digits as can be seen."""
    experiment = {key: value for key, value in method.runs[0].experiment.items() if key != "seed"}
    seeds = ", ".join(f"{run.experiment.get('seed', '?')} ({run.path.name})" for run in method.runs)
    curves = {metric: curve for metric in metrics if len((curve := method.curve_of(metric)).rounds)}
    quantiles = {metric: found for metric in metrics if (found := method.quantiles_of(metric)) is not None}
    return {
        "name": method.name,
        "colour": method.style.colour,
        "dash": ",".join(f"{length}px" for length in method.style.dash) or "solid",
        "x": {"round": [*range(1, method.length + 1)]} | {key: _rounded(all) for key, all in method.totals.items()},
        "y": {metric.name: _drawn(metric, curve, method.length) for metric, curve in curves.items()},
        "clients": {
            metric.name: {"y": _seen(mean, metric), "spread": _seen(spread, metric)}
            for metric, (mean, spread) in quantiles.items()
        },
        "of": len(method.runs),
        "runs": f"seed {seeds}" if len(method.runs) == 1 else f"seeds {seeds}",
        "experiment": tomli_w.dumps(experiment),
    }


def _drawn(metric: Metric, curve: Curve, length: int) -> dict[str, Any]:
    """Return a curve for the script: the rounds that have a score, unless all have one, and what stands behind it."""
    every_round = len(curve.rounds) == length
    return {
        "rounds": None if every_round else [int(number) for number in curve.rounds],
        "y": _seen(curve.mean, metric),
        "spread": None if curve.spread is None else _seen(curve.spread, metric),
        "seeds": None if curve.spread is None else [int(number) for number in curve.seeds],
    }


def _seen(scores: Array, metric: Metric) -> list[float]:
    return [float(f"{score:{metric.digits_drawn}}") for score in scores.tolist()]


def _rounded(values: Array) -> list[float]:
    """Return numbers to five significant digits, whole ones without a point."""
    rounded = [float(f"{value:.5g}") for value in values.tolist()]
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


def _heading(key: str, method: MethodRuns) -> str:
    if key in TO_TARGET and method.runs[0].target is not None:
        return f"{key} to target"
    return f"final {method.metric.name}" if key == "final" else key


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
    by_section = [by_arrival(methods) for methods in methods_in([section.runs for section in sections])]
    for number, (section, methods) in enumerate(zip(sections, by_section, strict=True), start=1):
        if not methods:
            continue
        rows = report_rows(methods)
        words += [f"\n## {section.title}\n\n", markdown(rows)]
        words += [f"\n{sentence}\n" for sentence in (*findings(methods), *table_notes(methods))]
        tex.append(f"% {' '.join(section.title.split())}\n{latex(rows)}")
        stem = f"{number:02d}-{_slug(section.title)}"
        _save(accuracy_figure(methods, title=section.title), out / "figures" / stem, beside)
        if any(method.epsilon is not None for method in methods):
            _save(epsilon_figure(methods, title=section.title), out / "figures" / f"{stem}-epsilon", beside)
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
