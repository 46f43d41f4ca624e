"""docs/ALGORITHMS.md: every algorithm is on it, as it is."""

import re
import tomllib
from pathlib import Path

import pytest

from fedadmm.algorithms import ALGORITHMS
from fedadmm.config.algorithm_table import algorithm_from_table
from fedadmm.studies.paper.study import published
from fedadmm.studies.tables import distance, facts, keys, methods, quadratics

PAGE = Path(__file__).parents[2] / "docs/ALGORITHMS.md"


def _rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells if len(row) == 10}


def test_every_algorithm_is_on_the_page_with_its_lines_and_sizes() -> None:
    rows, task = _rows(), quadratics()
    assert set(ALGORITHMS) <= set(methods())
    for name, algorithm in methods().items():
        assert (*rows[name][:6], rows[name][-1]) == (*facts(algorithm, task).values(), keys(algorithm)), (
            f"{name}: run python docs/build.py ALGORITHMS.md"
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fast_fedadmm", "fedavg", "scaffold"])
def test_the_distances_are_those_that_are_measured(name: str) -> None:
    task, algorithm = quadratics(), methods()[name]
    assert _rows()[name][6:8] == [distance(algorithm, task, participation=share) for share in (1.0, 0.2)]


def test_the_keys_are_those_that_an_experiment_takes() -> None:
    for name in ALGORITHMS:
        table = tomllib.loads("\n".join(_parted(keys(ALGORITHMS[name]()))))
        assert algorithm_from_table({"name": name, **table}) == ALGORITHMS[name]()


def _parted(text: str) -> list[str]:
    """Return the keys of a row, each with its value."""
    return re.findall(r"(\w+ = (?:\{.*\}|[^,]+))(?:, |$)", text)


def test_sizes_are_those_of_the_types() -> None:
    rows = _rows()
    assert rows["scaffold"][2:5] == ["d", "2d", "2d"]
    assert rows["fedpd"][2:6] == ["3d", "d", "d", "all compute, any communicate"]
    assert rows["fednova"][2:5] == ["0", "d + 1", "d"]
    assert rows["fedadam"][2:5] == ["0", "d", "3d"]


def test_a_sentence_is_about_an_algorithm() -> None:
    assert set(published("related_work")) <= set(ALGORITHMS)
