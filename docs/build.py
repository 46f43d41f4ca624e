"""Fill in the tables of README and of pages of docs/ from results/, others by measuring.

What stands between <!-- reproduce NAME ... --> (or rounds, bench, clock, privacy, uploads, keys) and <!-- end --> is
made again from the published records, or worked out on the spot. Pages are checked but for the blocks that take
minutes. With --bench only what was timed is filled in.
"""

import argparse
import re
import sys
from pathlib import Path

import bench_tables
import clock
import convex_tables
import privacy_table
import rounds_table
import theory_figures
import upload_tables

from fedadmm.config import keys
from fedadmm.report.figures import columns_figure, save_figure
from fedadmm.report.methods import methods_in
from fedadmm.report.table import markdown, report_rows
from fedadmm.studies.campaign import Places, jobs_of, paper_report
from fedadmm.studies.judging import judged_markdown
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import published_values
from fedadmm.studies.ratios import ratios_markdown

MINUTES = ("lemmas", "theorem1", "table1", "table_algorithms")
DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"
NAMES = (
    "KEYS.md",
    "REPRODUCTION.md",
    "FAMILY.md",
    "AUTO.md",
    "CLOCK.md",
    "THEORY.md",
    "CONVEX.md",
    "ALGORITHMS.md",
    "PRIVACY.md",
    "UPLOADS.md",
    "SPEED.md",
    "STATE.md",
    "DEPLOY.md",
    "explanation/demo.md",
)
PAGES = {"README.md": DOCS.parent / "README.md", **{name: DOCS / name for name in NAMES}}
CLOCK_BLOCK = re.compile(r"(<!-- clock -->\n).*?(<!-- end -->)", re.DOTALL)
PRIVACY_BLOCK = re.compile(r"(<!-- privacy -->\n).*?(<!-- end -->)", re.DOTALL)
KEYS_BLOCK = re.compile(r"(<!-- keys -->\n).*?(<!-- end -->)", re.DOTALL)
ROUNDS_BLOCK = re.compile(r"(<!-- rounds (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
UPLOADS_BLOCK = re.compile(r"(<!-- uploads (compression|attacks) -->\n).*?(<!-- end -->)", re.DOTALL)
# A study, its small version or not, with curves or without, and one of its columns or all.
BLOCK = re.compile(r"(<!-- reproduce (\w+)( small)?( curves)?(?: (\w+/\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def block(name: str, *, small: bool, curves: bool, draw: bool, column: str | None = None) -> str:
    """Return the tables of a study, with its curves if they are asked for; these are drawn anew on request."""
    study = PAPER[name]
    if study.table is not None:
        return markdown(study.table())
    if study.keeps_arrivals:
        return (ratios_markdown if study.default is None else judged_markdown)(study, results=RESULTS)
    jobs = jobs_of(
        study,
        places=Places(RESULTS, RESULTS),
        found=published_values(),
        size="small" if small else "paper",
        columns=None if column is None else [column],
    )
    sections = paper_report(study, jobs, results=RESULTS)
    if not sections:
        return "No run yet.\n"
    titles = [section.title for section in sections]
    methods = methods_in([section.runs for section in sections])
    parts = [f"{title}:\n\n{markdown(report_rows(rows))}" for title, rows in zip(titles, methods, strict=True)]
    if curves:
        picture = DOCS / "figures" / f"{name}{'' if small else '-paper'}.png"
        if draw:
            save_figure(columns_figure(dict(zip(titles, methods, strict=True)), width=12), picture)
        parts.append(f"![{study.title}, accuracy against rounds](figures/{picture.name})\n")
    return "\n".join(parts)


def filled(text: str, *, draw: bool) -> str:
    """Return a page with its blocks made again; those that take minutes only if pictures are drawn too."""

    def made(found: re.Match[str]) -> str:
        if found[2] in MINUTES and not draw:
            return found[0]
        content = block(found[2], small=bool(found[3]), curves=bool(found[4]), draw=draw, column=found[5])
        return f"{found[1]}\n{content}\n{found[6]}"

    def timed(found: re.Match[str]) -> str:
        runs = clock.runs_in(RESULTS)
        if draw:
            clock.draw(runs, DOCS / "figures" / "clock.png")
        return f"{found[1]}\n{clock.tables(runs)}\n{found[2]}"

    def private(found: re.Match[str]) -> str:
        best = privacy_table.best_runs(RESULTS)
        if draw and best:
            privacy_table.draw(best, DOCS / "figures" / "privacy.png")
        return f"{found[1]}\n{privacy_table.table(best)}\n{found[2]}"

    def on_their_way(found: re.Match[str]) -> str:
        if draw and found[2] == "compression":
            upload_tables.draw(RESULTS, DOCS / "figures" / "compression.png")
        tables = {"compression": upload_tables.compression_tables, "attacks": upload_tables.attack_tables}
        return f"{found[1]}\n{tables[found[2]](RESULTS)}\n{found[3]}"

    def rounds(found: re.Match[str]) -> str:
        return f"{found[1]}\n{rounds_table.table(PAPER[found[2]], RESULTS)}\n{found[3]}"

    text = ROUNDS_BLOCK.sub(rounds, text)
    text = UPLOADS_BLOCK.sub(on_their_way, PRIVACY_BLOCK.sub(private, text))
    text = KEYS_BLOCK.sub(lambda found: f"{found[1]}\n{keys.markdown()}\n{found[2]}", text)
    return CLOCK_BLOCK.sub(timed, BLOCK.sub(made, text))


def main() -> None:
    """Rewrite the pages, or those that are named, or with --check say whether they are up to date."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("pages", nargs="*", help=f"of {', '.join(PAGES)}; all if none is named")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is not up to date")
    parser.add_argument("--bench", action="store_true", help="only the tables of measurements")
    given = parser.parse_args()
    check, bench, names = given.check, given.bench, given.pages or list(PAGES)
    if unknown := set(names) - set(PAGES):
        sys.exit(f"there is no page {', '.join(sorted(unknown))}; use {', '.join(PAGES)}")
    stale = []
    for page in (PAGES[name] for name in names):
        before = page.read_text()
        after = bench_tables.filled(before)
        if not bench:
            after = convex_tables.filled(filled(after, draw=not check))
        if not check:
            page.write_text(after)
        elif after != before:
            stale.append(page.name)
    if stale:
        sys.exit(f"not what results/ and the measurements say: {', '.join(stale)}; run make docs")
    if not (check or bench) and "THEORY.md" in names:
        theory_figures.draw()


if __name__ == "__main__":
    main()
