"""What is asked of the command line before anything is computed starts without torch, which takes a second."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from run_folders import write_run

# Imports `fedadmm` as its command does, and forks a process for each command: it runs in a folder of its own with what
# it prints in a file, and says on a last line which slow imports it made.
CODE = """
import json, os, sys
from pathlib import Path
from fedadmm.cli import app, main

for folder, arguments, environment in json.loads(sys.argv[1]):
    if os.fork() == 0:
        os.chdir(folder)
        said = os.open("said", os.O_CREAT | os.O_WRONLY)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ.update(environment)
        sys.argv = ["fedadmm", *arguments]
        try:
            app(prog_name="fedadmm") if environment else main()
        except SystemExit:
            pass
        print()
        print(*sorted({"torch", "matplotlib.pyplot"} & set(sys.modules)), sep=",", end=".", flush=True)
        os._exit(0)
    os.wait()
"""
COMMANDS = [
    (["--help"], "fedadmm run digits"),
    (["run", "--help"], "Run an experiment"),
    (["list", "--out", "runs"], "fedavg-run"),
    (["keys", "local"], "batch_size = 32"),
    (["show", "runs/fedavg-run"], "Outcome: "),
    (["report", "runs", "-o", "out"], "Report: out/report.html"),
    (["rnu", "digits"], "Did you mean 'run'"),
    (["run", "digist"], "did you mean digits"),
    (["tune", "tabel3"], "did you mean table3"),
    (["reproduce", "tabel3"], "did you mean table3"),
    (["run", "digits", "--set", "algorithm.name=fedfoo"], "name='fedfoo' is unknown"),
]
COMPLETIONS = [("fedadmm re", ["report", "reproduce"]), ("fedadmm export --p", ["--personal-model"])]


class Said(NamedTuple):
    """What a command printed, and which slow imports it made."""

    text: str
    imports: str


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    """Return what each command and each completion said."""
    asked: dict[str, tuple[list[str], dict[str, str]]] = {str(arguments): (arguments, {}) for arguments, _ in COMMANDS}
    for words, _ in COMPLETIONS:
        asked[words] = ([], {"_FEDADMM_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": words})
    top = tmp_path_factory.mktemp("startup")
    folders = {name: top / str(number) for number, name in enumerate(asked)}
    for folder in folders.values():
        write_run(folder / "runs/fedavg-run", [0.2, 0.6, 0.6])
    _python(CODE, json.dumps([(str(folders[name]), *how) for name, how in asked.items()]), cache=top / "cache")
    found = {}
    for name, folder in folders.items():
        text, _, last = (folder / "said").read_text().rstrip().rpartition("\n")
        assert last.endswith("."), text
        found[name] = Said(text, last.removesuffix("."))
    return found


def _python(code: str, *arguments: str, cache: Path) -> str:
    environment = os.environ | {"COLUMNS": "200", "XDG_CACHE_HOME": str(cache)}
    command: list[Any] = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_package_and_the_commands_are_imported_without_torch(tmp_path: Path) -> None:
    load = "from fedadmm.cli import COMMANDS, load_command; [load_command(name) for name in COMMANDS]"
    assert _python(f"import sys, fedadmm; {load}; print('torch' in sys.modules)", cache=tmp_path) == "False\n"


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "expected"), COMMANDS)
def test_what_computes_nothing_starts_without_torch(said: dict[str, Said], arguments: list[str], expected: str) -> None:
    assert expected in said[str(arguments)].text
    assert not said[str(arguments)].imports


@pytest.mark.slow
@pytest.mark.parametrize(("words", "offered"), COMPLETIONS)
def test_completion_starts_without_torch(said: dict[str, Said], words: str, offered: list[str]) -> None:
    assert [word for word in offered if f'"{word}"' in said[words].text] == offered
    assert not said[words].imports
