"""The four algorithms that everybody compares are as short as their papers' pseudo-code."""

import pytest

import counts


@pytest.mark.parametrize("name", counts.LIMITS)
def test_an_algorithm_is_as_short_as_its_papers_pseudo_code(name: str) -> None:
    assert counts.of_algorithm(name) <= counts.LIMITS[name]


def test_comments_docstrings_imports_and_validation_do_not_count() -> None:
    text = '"""A file."""\n\nimport os\n\n\nclass A:  # one\n    """Two lines\n    of words."""\n'
    text += "\n    x = (\n        1\n    )\n"
    text += "\n    def __post_init__(self):\n        check_x(1)\n\n\ndef check_x(x):\n    return x\n"
    # `class A`, and the three lines of x.
    assert counts.algorithm_lines(text) == 4
    assert len(counts.lines_of_code(text)) == 9
