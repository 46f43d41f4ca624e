"""Laws run over every method on every world: a new algorithm in the table is under them at once."""

import pytest
from methods import METHODS
from worlds import WORLDS, World

from fedadmm.core.algorithm import Algorithm


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def method(request: pytest.FixtureRequest) -> Algorithm:
    """Return each method in turn."""
    return request.param


@pytest.fixture(params=WORLDS.values(), ids=WORLDS.keys())
def world(request: pytest.FixtureRequest) -> World:
    """Return each world in turn, fresh."""
    return request.param()
