"""The tables of docs/CONVEX.md are what the results say, the results are what the command finds, and theory holds."""

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from fedadmm.algorithms import ALGORITHMS
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import load_plan
from fedadmm.runs.simulation import simulation_of
from fedadmm.studies import convex
from fedadmm.studies.convex import (
    DATA,
    METHODS,
    Cell,
    broken_promises,
    cells,
    clients,
    fill,
    outcome,
    promised,
    read,
    rows,
    slope,
    theory_rows,
)
from fedadmm.studies.theory.smoothness import of_task

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "convex.json"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("convex_tables", ROOT / "docs" / "convex_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_results_say(tables: ModuleType) -> None:
    text = (ROOT / "docs" / "CONVEX.md").read_text()
    assert tables.filled(text) == text
    assert text.count("| FedHybrid, Newton |") == 4


def test_the_experiment_on_the_page_is_the_problem_of_the_preset() -> None:
    text = (ROOT / "docs" / "CONVEX.md").read_text()
    shown = Experiment.from_toml(text.split("```toml\n")[1].split("```")[0])
    preset = load_plan("quadratic").experiment()
    assert (shown.model, shown.data, shown.metric) == (preset.model, preset.data, preset.metric)
    simulation = simulation_of(shown.replace(engine="serial"))
    smoothness = of_task(simulation.task, w=simulation.theta, buffers=simulation.checkpoint.buffers)
    assert str(smoothness) == "1 (exact: least squares, from the data)"


def test_every_cell_is_there_and_of_these_settings() -> None:
    found = read(RESULTS)
    assert {cell.key: cell.setting for cell in cells()} == {key: entry["setting"] for key, entry in found.items()}


@pytest.mark.slow
def test_a_cell_run_again_is_the_one_that_is_there() -> None:
    cell = Cell("FedDyn", "non-IID", 1.0)
    entry, published = outcome(cell), read(RESULTS)[cell.key]
    assert entry["arrivals"] == published["arrivals"]
    assert entry["slope"] == pytest.approx(published["slope"], rel=1e-2)


def test_no_promise_is_broken() -> None:
    assert broken_promises(read(RESULTS)) == []


def test_a_broken_promise_is_named() -> None:
    found = read(RESULTS)
    found["FedDyn / IID / 1"]["slope"] = -0.001
    assert broken_promises(found) == ["FedDyn / IID / 1"]


def test_gradient_descents_slope_is_that_of_its_largest_factor() -> None:
    curvatures = np.linalg.eigvalsh(clients("non-IID")[0].mean(dim=0).numpy())
    assert promised(Cell("FedSGD", "non-IID", 1.0)) == pytest.approx(math.log10(1 - curvatures[0]))
    assert promised(Cell("FedSGD", "non-IID", 0.1)) is None


def test_the_clients_are_conditioned_as_the_page_says() -> None:
    for data in DATA:
        curvatures = torch.linalg.eigvalsh(clients(data)[0])
        torch.testing.assert_close(curvatures[:, 0], torch.full((100,), 0.1).double())
        torch.testing.assert_close(curvatures[:, -1], torch.ones(100).double())


def test_a_slope_is_fitted() -> None:
    assert slope(10.0 ** (-0.25 * np.arange(20))) == pytest.approx(-0.25)


def test_what_is_there_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def ten(cell: Cell) -> dict[str, object]:
        ran.append(cell.key)
        return {"setting": cell.setting, "rounds": 9, "arrivals": [4, None], "slope": -1.0, "last": 0.5}

    few = cells()[:3]
    monkeypatch.setattr(convex, "cells", lambda: few)
    monkeypatch.setattr(convex, "outcome", ten)
    path = tmp_path / "results" / "convex.json"
    fill(path, on_cell=lambda *_: None)
    path.write_text(json.dumps({key: entry for key, entry in read(path).items() if key != few[1].key}))
    found = fill(path, on_cell=lambda *_: None)
    assert ran == [*(cell.key for cell in few), few[1].key]
    assert {entry["made_with"]["torch"] for entry in found.values()} == {torch.__version__}
    assert rows(found, data="IID")[0] == {
        "method": "FedSGD", "all: 1e-3": "4", "all: 1e-6": "9+", "all: ends at": "0.5",
        "10%: 1e-3": "4", "10%: 1e-6": "9+", "10%: ends at": "0.5",
        "1%: 1e-3": "4", "1%: 1e-6": "9+", "1%: ends at": "0.5",
    }  # fmt: skip
    assert theory_rows(found, data="IID")[0]["all: measured"] == "-"


def test_every_algorithm_that_the_table_knows_is_an_algorithm() -> None:
    assert {type(method.algorithm) for method in METHODS.values()} <= set(ALGORITHMS.values())
