"""Every sentence with which an input is refused, read off the source: what is wrong, and what to do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import fedadmm

ROOMS = {
    "core": "All settings",
    "algorithms": "Methods",
    "data": "Data and partitions",
    "state": "Client state on disk",
    "training": "Models and local training",
    "engine": "Engines",
    "network": "Clocks, faults and asynchrony",
    "uploads": "What becomes of uploads",
    "secure": "Secure aggregation",
    "config": "Experiments and files",
    "runs": "Run folders",
    "report": "Reports",
    "api": "Python functions",
    "flower": "Flower",
    "studies": "The studies of the paper",
    "cli": "The command line",
}
RAISED = {"InputError", "NoCertificateError"}


def sentences(folder: Path) -> Iterator[str]:
    """Yield the sentences in the files of a folder, with an ellipsis for what is filled in."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISED and node.args:
                text = "".join(_parts(node.args[0]))
                if len(text.replace("…", "").split()) >= 3:
                    yield " ".join(text.split())
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "problems":
                # Reasons, of which one ends a sentence.
                for reason in getattr(node.value, "keys", []):
                    yield "".join(_parts(reason))


def _parts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _parts(value)
    elif isinstance(node, ast.BinOp):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield "…"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("$", "\\$")


def markdown() -> str:
    """Return a table of each room's sentences."""
    package = Path(fedadmm.__file__).parent
    others = {path.name for path in package.iterdir() if any(path.glob("*.py"))} - set(ROOMS)
    parts = []
    for room in (*ROOMS, *sorted(others)):
        found = sorted(set(sentences(package / room)), key=str.lower)
        if not found:
            continue
        rows = ["| what it says | the remedy in it |", "| --- | --- |"]
        for sentence in found:
            said, _, remedy = sentence.rpartition("; ") if "; " in sentence else (sentence, "", "…")
            rows.append(f"| {_cell(said)} | {_cell(remedy)} |")
        parts.append("\n".join([f"## {ROOMS.get(room, room)}\n", *rows]))
    return "\n\n".join(parts) + "\n"
