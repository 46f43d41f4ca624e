"""Print the lines of code of each room and of the algorithms: `python tests/counts.py`, with plain Python.

A line of code is neither blank nor a comment nor a docstring. Of an algorithm neither imports nor validation
(`__post_init__`, and functions whose names begin with "check") count.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/fedadmm"
LIMITS = {"fedavg": 15, "fedprox": 13, "scaffold": 22, "fedadmm": 40}  # the goals of four algorithms
NOTHING = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def lines_of_code(text: str) -> set[int]:
    """Return the numbers of the lines of code in a file."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {n for t in tokens if t.type not in NOTHING for n in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines -= _span(first)
    return lines


def algorithm_lines(text: str) -> int:
    """Return the lines of code of an algorithm, beside imports and validation."""
    lines = lines_of_code(text)
    for node in ast.walk(ast.parse(text)):
        validates = isinstance(node, ast.FunctionDef) and node.name.lstrip("_").startswith(("post_init", "check"))
        if validates or isinstance(node, ast.Import | ast.ImportFrom):
            lines -= _span(node)
    return len(lines)


def of_algorithm(name: str) -> int:
    """Return the lines of code of one of our algorithms."""
    return algorithm_lines((PACKAGE / "algorithms" / f"{name}.py").read_text())


def of_rooms() -> dict[str, tuple[int, int]]:
    """Return the lines of code and the number of files in each room; the files beside the rooms are "fedadmm"."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        room = parts[0] if len(parts) > 1 else "fedadmm"
        lines[room] += len(lines_of_code(path.read_text()))
        files[room] += 1
    return {room: (lines[room], files[room]) for room in sorted(lines)}


def _span(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def main() -> None:
    """Print all counts."""
    rooms = of_rooms()
    print(f"{'room':<12} {'lines':>6} {'files':>6}")
    for room, (lines, files) in rooms.items():
        print(f"{room:<12} {lines:>6} {files:>6}")
    print(
        f"{'all':<12} {sum(lines for lines, _ in rooms.values()):>6} {sum(files for _, files in rooms.values()):>6}\n"
    )
    for name, limit in LIMITS.items():
        print(f"{name:<12} {of_algorithm(name):>6} of at most {limit}")


if __name__ == "__main__":
    main()
