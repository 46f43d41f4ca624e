"""Laws run over every method on quadratics, and over every algorithm on a network (some of them in a plain `pytest`).

A new algorithm in the table is under them at once.
"""

import pytest

from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.algorithm import Algorithm
from methods import METHODS, ON_NETWORKS, PLAIN
from worlds import WORLDS, World

# A network is slow, and settings that differ in the server's arithmetic alone do not meet it.
ON_A_NETWORK = [name for name in ALGORITHMS if name in ON_NETWORKS]
ON_A_NETWORK += ["fedadmm, participation", "fedadmm, seen, global", "feddyn, seen, rising"]
CASES = [
    *((name, "quadratics") for name in METHODS),
    *((name, "network") for name in ON_A_NETWORK),
    *((name, "solvers") for name in ("fedadmm", "fedadmm, seen, global", "feddyn")),
]
SLOW = {case for name in ON_A_NETWORK if name not in PLAIN for case in ((name,), (name, "network"))}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a law its cases: methods, worlds, or the pairs of both."""
    wanted = [name for name in ("method", "world") if name in metafunc.fixturenames]
    cases = {
        ("method", "world"): CASES,
        ("method",): [(name,) for name in ON_A_NETWORK],
        ("world",): [(name,) for name in WORLDS],
    }
    if wanted:
        cases_here = [
            pytest.param(*case, id=", ".join(case), marks=[pytest.mark.slow] if case in SLOW else [])
            for case in cases[tuple(wanted)]
        ]
        metafunc.parametrize(wanted, cases_here, indirect=True)


@pytest.fixture
def method(request: pytest.FixtureRequest) -> Algorithm:
    """Return each method in turn."""
    return METHODS[request.param]


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """Return each world in turn, fresh."""
    return WORLDS[request.param]()
