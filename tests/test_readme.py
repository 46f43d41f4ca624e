"""Every command and every block of the README is run, in the order of the page and in one folder."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from commands import fedadmm
from fedadmm.algorithms import ALGORITHMS

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


def run(command, *, cwd):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def arguments_of(line, *, cwd):
    """Return what a shell hands over to `fedadmm`, with patterns filled in and without comments."""
    shell = ["bash", "-c", f"""fedadmm() {{ printf '%s\\0' "$@"; }}\n{line}"""]
    return subprocess.run(shell, cwd=cwd, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


@pytest.mark.slow
def test_every_block_of_the_readme_runs(tmp_path):
    commands = 0
    for language, text in BLOCKS:
        file_name = re.match(r"# (\S+\.(?:py|toml))\n", text)
        if file_name:
            (tmp_path / file_name[1]).write_text(text)
        elif language == "python":
            run([sys.executable, "-c", text], cwd=tmp_path)
        else:
            assert language == "bash"
            for line in text.splitlines():
                assert line.startswith("fedadmm ")
                done = fedadmm(*arguments_of(line, cwd=tmp_path), cwd=tmp_path)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
                commands += 1
    assert commands >= 5


@pytest.mark.slow
def test_make_demo_prints_a_table_and_draws_its_picture(tmp_path):
    """What `make demo` does after the install, from the Makefile's own recipe."""
    recipe = subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/installed", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    (command,) = [line for line in recipe if "bin/fedadmm compare" in line]
    # After 17 rounds most methods are at the target; the rounds and the upload that it took do not change any more.
    words = shlex.split(command.replace(".venv/bin/", ""))
    assert words == ["fedadmm", "compare", "digits", "--out", "demo"]
    done = fedadmm(*words[1:], "--rounds", 17, "--set", "engine=serial", cwd=tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (table,) = (tmp_path / "demo").glob("digits-*.md")
    assert table.with_suffix(".png").stat().st_size > 20_000
    assert "fedadmm_printed" in (tmp_path / "demo/report.html").read_text()
    made = _rows(table.read_text())
    shown = _rows((ROOT / "docs/explanation/demo.md").read_text())[: len(made)]
    assert sorted(row[0] for row in made) == sorted(row[0] for row in shown)
    arrived = sorted(row[:3] for row in made if row[2] != "-")
    assert len(arrived) >= 8
    assert arrived == sorted(row[:3] for row in shown if row[0] in [name for name, *_ in arrived])


def _rows(text: str) -> list[list[str]]:
    """Return the cells of the tables in a page of Markdown, but for their headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("target", "extras"), [("demo", ["."]), ("install", [".", '".[dev]"'])])
def test_the_demo_installs_the_package_alone(target, extras):
    recipe = subprocess.run(
        ["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [line.rpartition(" ")[2] for line in recipe if "pip install" in line] == extras
    assert sum("some minutes" in line for line in recipe) == len(extras)


def test_the_readme_is_short_and_counts_the_methods_and_names_the_version_there_are():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert f"| {len(ALGORITHMS)}, both halves in one file |" in text
    assert f"| | fedadmm {version('fedadmm')} |" in text
    assert f"version: {version('fedadmm')}" in (ROOT / "CITATION.cff").read_text()


def test_documents_name_no_file_that_is_not_there():
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name} refers to {target}"


@pytest.mark.parametrize("source", [None, "https://example.org/fedadmm"])
def test_the_readme_has_no_dead_link_on_a_package_index(monkeypatch, source):
    interface = ModuleType("interface")
    interface.MetadataHookInterface = object
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    monkeypatch.syspath_prepend(ROOT)
    shown = import_module("hatch_build").for_index((ROOT / "README.md").read_text(), source=source)
    assert all(target.startswith(("https://", "#")) for target in re.findall(r"\]\(([^)]*)\)", shown))
    assert f"[docs/SPEED.md]({source}/blob/main/docs/SPEED.md)" in shown if source else "is in docs/SPEED.md." in shown


@pytest.mark.slow
def test_the_tables_of_the_reproduction_are_what_the_results_say(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.setattr(sys, "argv", ["build.py", "--check"])
    runpy.run_path(str(ROOT / "docs/build.py"), run_name="__main__")  # it exits with what is not up to date
