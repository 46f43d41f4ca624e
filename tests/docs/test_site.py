"""The documentation builds without a warning, and a real browser shows it from disk: wide, narrow, light and dark."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from browser import needs_browser, show, wait_for
from fedadmm.config.keys import tables

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (ROOT / "docs").rglob("*.md") if "extensions" not in page.parts]

pytestmark = pytest.mark.xdist_group("site")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_what_the_reader_gets_and_how_long_it_takes(page):
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(), flags=re.DOTALL)
    title, lead, *_ = [part for part in text.split("\n\n") if part.strip()]
    assert title.strip().startswith("# ")
    assert lead.startswith("> You ")
    assert re.search(r"\b(minutes?|seconds)\.$", lead.strip()), lead


def test_no_page_names_a_key_that_does_not_exist():
    known = {"algorithm": {"name"}, "model": {"safetensors"}, "secure": {"json"}}  # the last two are files
    for table in tables():
        name = "algorithm" if table.name.startswith("algorithm ") else table.name
        known.setdefault(name, set()).update(key.name for key in table.keys)
    key = re.compile(rf"(?:--set |`)({'|'.join(map(re.escape, filter(None, known)))})\.(\w+)(?=[=` ])")
    pages = [*PAGES, ROOT / "README.md"]
    wrong = [
        (page.name, found)
        for page in pages
        for found in key.findall(page.read_text())
        if found[1] not in known[found[0]]
    ]
    assert wrong == []


def test_every_refusal_has_a_remedy(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/extensions")
    said = set(import_module("refusals").sentences(ROOT / "src/fedadmm"))
    assert 'the attack "lie" is made of the uploads of others; use another attack' in said
    # What ends with an ellipsis ends with another sentence, which has it.
    assert [sentence for sentence in said if "; " not in sentence and not sentence.endswith("…")] == []


def test_every_command_has_an_example_of_its_output(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/extensions")
    reference = import_module("command_reference")
    shown = {*reference.EXAMPLES, *reference.RECORDED}
    # Groups, and two that run until they are ended.
    silent = {"data", "federation", "federation superlink", "federation supernode"}
    assert {name for name, _ in reference.commands()} - shown == silent
    ends = {name: made["exit code"] for name, made in reference.RECORDED.items() if made["exit code"]}
    assert ends == {"federation metrics": 143}  # it was ended from outside


def test_every_option_is_a_row_of_three_cells(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/extensions")
    reference = import_module("command_reference")
    rows = [row for _, command in reference.commands() for row in reference._rows(command)]
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows]
    assert [row for row in cells if len(row) != 3] == []
    assert "--own-model" not in "".join(rows)  # a hidden one, which has no meaning to show


def test_what_has_a_docstring_of_pythons_has_ours_on_the_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/extensions")
    process, shown = import_module("docstrings")._process, {}
    for name, theirs in {"Turnout.active": "Alias for field number 1", "Vector": "Special type ..."}.items():
        process(None, "", f"fedadmm.{name}", None, None, lines := [theirs])
        shown[name] = lines[0]
    assert shown["Turnout.active"] == "of the uploads applied in this round"
    assert shown["Vector"].startswith("A flat vector: a torch.Tensor")


def test_what_was_timed_is_on_the_pages_as_it_was_recorded(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    filled = import_module("bench_tables").filled
    with_blocks = [page for page in PAGES if "<!-- bench " in page.read_text()]
    assert len(with_blocks) >= 5
    assert [page.name for page in with_blocks if filled(page.read_text()) != page.read_text()] == []


@pytest.mark.parametrize("name", ["SPEED", "STATE", "DEPLOY", "PRIVACY", "UPLOADS"])
def test_a_page_of_measurements_has_no_figure_that_was_typed(name):
    text = (ROOT / "docs" / f"{name}.md").read_text()
    made = r"<!-- (?:bench|privacy|uploads).*?<!-- end -->"
    prose = re.sub(rf"{made}|```.*?```|^ {{4,}}.*?$|`[^`]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    versions = re.sub(r"\d+\.\d+\.\d+(?:\.\d+)?|Flower 1\.\d+", "", prose)
    # Whole numbers are constants of the code: a measurement has decimals.
    assert re.findall(r".*\d\.\d\d.*|.*\d\.\d+ (?:MB|GB|s|ms|seconds|times)\b.*", versions) == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site as `make site` does."""
    recipe = subprocess.run(
        ["make", "--dry-run", "--assume-old=install", "site"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    (command,) = [line for line in recipe if "sphinx-build" in line]
    folder = tmp_path_factory.mktemp("site")
    options = command.split()[1:-4]  # without the folders
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            *options,
            "--doctree-dir",
            folder / "doctrees",
            ROOT / "docs",
            folder / "site",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return folder / "site"


@pytest.mark.slow
def test_no_page_asks_the_network_for_a_part_of_it(site):
    wanted = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=["'](?:https?:)?//[^"']+""")
    pages = [*site.rglob("*.html")]
    assert len(pages) >= len(PAGES)
    assert [found for page in pages for found in wanted.findall(page.read_text())] == []


class TestInABrowser:
    pytestmark = needs_browser

    def test_no_page_is_wider_than_the_screen_and_the_console_is_silent(self, driver, site):
        for number, page in enumerate(sorted(site.rglob("*.html"))):
            # A page is loaded on one screen and then moved to the other; which comes first alternates.
            screens = [(1400, "light"), (400, "dark")] if number % 2 else [(400, "light"), (1400, "dark")]
            for place, (width, scheme) in enumerate(screens):
                show(driver, width=width, scheme=scheme)
                if place == 0:
                    driver.get(page.as_uri())
                widest, screen, background = driver.execute_script(
                    "const e = document.documentElement;"
                    " return [e.scrollWidth, e.clientWidth, getComputedStyle(document.body).backgroundColor]"
                )
                assert widest <= screen, f"{page.name} is {widest} px wide on a screen of {screen} px"
                light = sum(map(int, re.findall(r"\d+", background)[:3])) > 380
                assert light == (scheme == "light"), f"{page.name}: {background} where it is {scheme}"
            assert driver.get_log("browser") == [], page.name

    def test_the_search_finds_rho(self, driver, site):
        show(driver, width=1400)
        driver.get((site / "search.html").as_uri() + "?q=rho")
        # Results come one after the other.
        found = "document.querySelector('#search-results').textContent"
        wait_for(driver, f"return {found}.includes('Every key') && {found}.includes('How rho, eta')")
