"""What is asked of the command line before anything is computed starts without torch, which takes a second."""

import os
import subprocess
import sys

import pytest

from run_folders import write_run

# Runs `fedadmm` with the arguments of this process, and then says on a last line whether torch was imported.
TORCH = "print(); print('torch' in sys.modules)"
CODE = f"""
import sys
from fedadmm.cli import main
try:
    main()
except SystemExit:
    pass
{TORCH}
"""


def imports_torch(*arguments, cwd, code=CODE, **environment):
    """Return what a command printed, and whether it imported torch."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"COLUMNS": "200", "XDG_CACHE_HOME": str(cwd / "cache")} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    printed, _, last = done.stdout.rstrip().rpartition("\n")
    assert last in ("True", "False"), done.stderr
    return printed + done.stderr, last == "True"


def test_the_package_and_the_commands_are_imported_without_torch(tmp_path):
    load = "from fedadmm.cli.commands import COMMANDS, load_command; [load_command(name) for name in COMMANDS]"
    _, torch = imports_torch(cwd=tmp_path, code=f"import sys, fedadmm, fedadmm.cli; {load}; {TORCH}")
    assert not torch


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "fedadmm run digits"),
        (["run", "--help"], "Run an experiment"),
        (["list", "--out", "runs"], "fedavg-run"),
        (["show", "runs/fedavg-run"], "Outcome: "),
        (["report", "runs", "-o", "out"], "Report: out/report.html"),
        (["rnu", "digits"], "Did you mean 'run'"),
        (["run", "digist"], "did you mean digits"),
        (["tune", "tabel3"], "did you mean table3"),
        (["reproduce", "tabel3"], "did you mean table3"),
        (["run", "digits", "--set", "algorithm.name=fedfoo"], "name='fedfoo' is unknown"),
    ],
)
def test_what_computes_nothing_starts_without_torch(tmp_path, arguments, said):
    write_run(tmp_path / "runs/fedavg-run", [0.2, 0.6, 0.6])
    printed, torch = imports_torch(*arguments, cwd=tmp_path)
    assert said in printed
    assert not torch


@pytest.mark.parametrize(
    ("words", "offered"), [("fedadmm re", ["report", "reproduce"]), ("fedadmm export --p", ["--personal-model"])]
)
def test_completion_starts_without_torch(tmp_path, words, offered):
    variables = {"_FEDADMM_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": words}
    code = CODE.replace("main()", "app(prog_name='fedadmm')").replace("import main", "import app")
    printed, torch = imports_torch(cwd=tmp_path, code=code, **variables)
    assert [word for word in offered if f'"{word}"' in printed] == offered
    assert not torch
