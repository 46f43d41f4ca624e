"""The commands of the page on closed networks run where nothing can be reached."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedadmm.flower.local.processes import search_path

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "closed-network.md"
NOWHERE = "http://127.0.0.1:9"  # a port at which nobody listens

pytestmark = [pytest.mark.slow, pytest.mark.deployment]


def _closed(script: str, *, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script in a network namespace with loopback alone; where that is not allowed, with proxies to nowhere."""
    alone = ["unshare", "--net", "bash", "-c", f"ip link set lo up && {script}"]
    allowed = shutil.which("unshare") and subprocess.run([*alone[:2], "true"], capture_output=True, check=False)
    command = alone if allowed and allowed.returncode == 0 else ["bash", "-c", script]
    proxies = {f"{name}_proxy": NOWHERE for name in ("http", "https", "HTTP", "HTTPS", "ALL")}
    environment = os.environ | proxies | {"PATH": search_path(), "FEDADMM_DATA": str(cwd / "data")}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_the_commands_of_the_page_need_no_network(tmp_path: Path) -> None:
    section = PAGE.read_text().partition("**4. Try it.**")[2]
    block = re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL)[0]
    commands = [line.removeprefix("$ ") for line in block.splitlines()]
    assert len(commands) == 4
    done = _closed(" && ".join(commands), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "report" / "report.html").exists()
    assert (tmp_path / "my-app" / "pyproject.toml").exists()
