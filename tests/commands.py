"""The command line as a person uses it: a process of its own, its output and its exit code."""

import os
import subprocess
import sys
from pathlib import Path


def fedadmm(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `fedadmm` with these arguments in a folder; its width is fixed so that lines are not folded."""
    return subprocess.run(
        [sys.executable, "-m", "fedadmm", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
