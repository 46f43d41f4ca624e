"""docs/ALGORITHMS.md: every algorithm is on it, as it is."""

from pathlib import Path

from fedadmm.algorithms import ALGORITHMS
from fedadmm.experiments.paper.related_work import SENTENCES
from fedadmm.experiments.paper.table_algorithms import facts, methods, quadratics

PAGE = Path(__file__).parents[2] / "docs/ALGORITHMS.md"


def _rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells if len(row) == 9}


def test_every_algorithm_is_on_the_page_with_its_lines_and_sizes() -> None:
    rows, task = _rows(), quadratics()
    assert set(ALGORITHMS) <= set(methods())
    for name, algorithm in methods().items():
        assert tuple(rows[name][:6]) == facts(algorithm, task), (
            f"{name}: run python docs/build.py ALGORITHMS.md"
        )


def test_sizes_are_those_of_the_types() -> None:
    rows = _rows()
    assert rows["scaffold"][2:5] == ["d", "2d", "2d"]
    assert rows["fedpd"][2:6] == ["3d", "d", "d", "all compute, any communicate"]
    assert rows["fednova"][2:5] == ["0", "d + 1", "d"]
    assert rows["fedadam"][2:5] == ["0", "d", "3d"]


def test_a_sentence_is_about_an_algorithm() -> None:
    assert set(SENTENCES) <= set(ALGORITHMS)
