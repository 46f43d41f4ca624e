"""A run that was never interrupted, for all tests that interrupt one, and folders to be damaged."""

import shutil
from pathlib import Path

import pytest

from killed_runs import ROUNDS, Result, RunPlace


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> RunPlace:
    """Return a place in which `whole` is a run that was never interrupted."""
    place = RunPlace.made(tmp_path_factory.mktemp("resume"))
    assert place.run("whole") == 0
    return place


@pytest.fixture(scope="session")
def whole(place: RunPlace) -> Result:
    """Return the result of the run that was never interrupted."""
    result = place.result("whole")
    assert len(result[1]) == ROUNDS
    return result


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """Return a copy of the sound run folder of a module, to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / sound.name))


@pytest.fixture
def out(request: pytest.FixtureRequest) -> str:
    """Return the name of a folder for this test's run."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)
