"""The arrows between packages (ARCHITECTURE.md), read off the import statements."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedadmm

SOURCE = Path(fedadmm.__file__).parent
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))

# What a room may import of ours, besides itself.
PLANS = {"core", "algorithms", "data", "uploads", "secure", "training", "network", "engine"}
RUNS = PLANS | {"state", "config", "own_code"}
ARROWS = {
    "core": set(),
    "algorithms": {"core"},
    "data": {"core"},
    "state": {"core"},
    "uploads": {"core", "secure"},
    "secure": {"core"},
    "own_code": {"core"},
    "training": {"core", "data"},
    "engine": {"core", "data", "training", "state"},
    "network": {"core", "data", "training", "engine"},
    "config": PLANS,
    "runs": RUNS,
    "report": {"core", "runs"},
    "api": RUNS | {"runs", "report"},
    "flower": RUNS | {"runs"},
    "studies": RUNS | {"runs", "report"},
    "cli": set(PACKAGES),
}


def _imported_modules(path: Path) -> set[str]:
    """Return the dotted names that a file imports, wherever in the file, relative ones made absolute."""
    package = ["fedadmm", *path.relative_to(SOURCE).parts[:-1]]
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            modules |= {f"{base}.{alias.name}" for alias in node.names}
    return modules


def _imported_packages(path: Path) -> set[str]:
    """Return our packages and modules (the name after `fedadmm.`) that a file imports."""
    return {name.split(".")[1] for name in _imported_modules(path) if name.startswith("fedadmm.")}


def _strays(room: str) -> set[str]:
    """Return the imports of a room's files that its arrows forbid."""
    ours = {path.stem for path in SOURCE.glob("*.py")} | set(PACKAGES)
    forbidden = ours - ARROWS[room] - {room}
    return {
        f"{path.relative_to(SOURCE)} imports {found}"
        for path in (SOURCE / room).rglob("*.py")
        for found in _imported_packages(path) & forbidden
    }


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_what_its_arrows_allow(room: str) -> None:
    assert _strays(room) == set()


def test_every_room_has_arrows() -> None:
    assert set(ARROWS) == set(PACKAGES)


def test_the_page_on_the_architecture_has_every_room_below_those_that_it_imports() -> None:
    page = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
    rooms = re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)
    assert sorted(rooms) == sorted(ARROWS)
    for place, room in enumerate(rooms):
        assert ARROWS[room] - {room} <= {*rooms[:place]}, room


@pytest.mark.slow
def test_nobody_imports_flower() -> None:
    others = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "flower"]
    local = tuple(f"fedadmm.flower.{name}" for name in ("local", "node_status", "server_folder", "folders", "metrics"))
    flower = {p: {n for n in _imported_modules(p) if n.startswith("fedadmm.flower")} for p in others}
    # The commands import what needs no flwr, and the rest where a server's folder is opened.
    strays = {path: {name for name in names if not name.startswith(local)} for path, names in flower.items()}
    assert {
        path: names for path, names in strays.items() if names or (flower[path] and path.parent.name != "cli")
    } == {}
    assert [p for p in others if any(name.split(".")[0] == "flwr" for name in _imported_modules(p))] == []


@pytest.mark.slow
def test_importing_the_command_line_starts_no_thread_of_torchs() -> None:
    # A process that forks afterwards, as a fork server does, would leave them behind and wait for them for ever.
    count = "len(os.listdir('/proc/self/task'))"
    ours = "import fedadmm.cli.run, fedadmm.runs.runner"
    code = f"import os, torch, sklearn.datasets; before = {count}; {ours}; print({count} - before)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(said) == 0
