"""The notebook in examples/ runs from top to bottom in a real kernel, and shows its bars and its results."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


# The kernel's own sockets are closed when the garbage collector comes by.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs_and_shows_bars_and_results(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] for cell in cells)  # it is kept as it was written
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"execute_result", "display_data", "stream"}
    results = [output.data for output in outputs if output.output_type == "execute_result"]
    html = [data["text/html"] for data in results if "text/html" in data]
    assert len(html) == 6  # two results, a table of pandas, two comparisons and a tuning
    assert sum("<img" in text for text in html) == 4
    assert sum("image/png" in data for data in results) == 2
    bars = [output.data["text/plain"] for output in outputs if output.output_type == "display_data"]
    found = [re.findall(r"round (\d+)/(\d+)", text) for text in bars]
    # One bar a run, or one below the other for runs side by side; each moved in its place to the last round.
    assert all(found)
    rounds = [now == last for own in found for now, last in own]
    assert len(rounds) >= 10
    assert all(rounds)
    assert _streams(outputs) == ""


def _streams(outputs: list[Any]) -> str:
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stderr")
