"""The notebook in examples/ runs from top to bottom, and what its cells end with can be shown."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does, and return what its last line is if that is an expression."""
    *body, last = ast.parse(source).body
    shown = isinstance(last, ast.Expr)
    exec(compile(ast.Module(body if shown else [*body, last], []), str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names) if shown else None


@pytest.mark.slow
def test_the_notebook_runs_and_shows_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells]
    html = [text for value in shown if hasattr(value, "_repr_html_") and (text := value._repr_html_())]
    assert len(html) == 6  # two results, a table of pandas, two comparisons and a tuning
    assert sum("<img" in text for text in html) == 4
    assert sum(hasattr(value, "_repr_png_") for value in shown) == 2
    assert all("outputs" not in cell or cell["outputs"] == [] for cell in cells)  # it is kept as it was written
