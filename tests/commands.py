"""The command line as a person uses it: a process of its own, its output and its exit code."""

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from children import command

WIDTH = 200  # so that lines are not folded


def fedadmm(*arguments: object, cwd: Path) -> CompletedProcess[str]:
    """Run `fedadmm` with these arguments in a folder, in a process that has imported it already."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = command(*arguments, log=out, before=partial(_prepare, cwd, dict(os.environ), err))
        process.join(300)
        process.kill()
        process.join()
        assert process.exitcode is not None
        return CompletedProcess([*map(str, arguments)], process.exitcode, out.read_text(), err.read_text())


_ONE_AFTER_THE_OTHER = """
import json, os, sys
from fedadmm import cli
for environment, *arguments in json.loads(sys.argv[1]):
    os.environ |= environment
    sys.argv = ["fedadmm", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise
"""


def from_the_start(*commands: list[Any], cwd: Path) -> CompletedProcess[str]:
    """Run commands in one new Python, for libraries that tidy up when it ends: a forked process does not call them.

    A command is its arguments behind variables of the environment, which the later ones see too.
    """
    return subprocess.run(
        [sys.executable, "-c", _ONE_AFTER_THE_OTHER, json.dumps(commands)],
        cwd=cwd,
        env=os.environ | {"COLUMNS": str(WIDTH)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _prepare(cwd: Path, environment: dict[str, str], err: Path) -> None:
    from fedadmm.cli import console

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment, COLUMNS=str(WIDTH))
    console.out.width = console.err.width = WIDTH
    with err.open("w") as file:
        os.dup2(file.fileno(), 2)
