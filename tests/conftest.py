"""What all tests share: the same examples in every run, one thread, and the published data where it is at hand."""

# ruff: noqa: E402 - some things are said before anything is imported

import gc
import os
from collections.abc import Callable
from pathlib import Path

gc.disable()  # until all tests are collected: what is imported stays, and to look at it time and again takes seconds
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the commands and scripts, too, that tests start

import hypothesis
import pytest
import torch

from browser import driver  # noqa: F401 - a fixture of several rooms
from fedadmm.core.engine import num_cores
from fedadmm.data.files import DataFile, present

hypothesis.settings.register_profile("same_examples", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("same_examples")
torch.set_num_threads(1)

# What has tests that take half a minute: these are begun first, the longest before all, so that no process is left
# with one at the end.
_LONGEST = (
    "test_site.py",
    "test_ray_cluster.py",
    "test_readme.py",
    "test_notebook.py",
    "test_workers.py",
    "test_check.py",
)
_BESIDE_THE_REPOSITORY = Path(__file__).parents[2] / "shared" / "data"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use all cores for a plain `pytest`, and this process alone where tests are named: two more would start first."""
    return 0 if any(not part.startswith("-") for part in config.invocation_params.args) else num_cores()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Put the longest tests first, and tests that share a fixture of their file into one process, which makes it."""
    for item in items:
        made = item._fixtureinfo.name2fixturedefs.values()
        if item.get_closest_marker("xdist_group") is None and any(one[-1].scope == "module" for one in made):
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_collection_finish() -> None:
    """Let garbage be collected from here on, but not be looked for among all that was imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def published() -> Callable[..., Path]:
    """Return a function that gives the folder with the published files that it is asked for, or skips the test."""

    def folder_with(*files: DataFile) -> Path:
        folder = Path(os.environ.get("FEDADMM_DATA") or _BESIDE_THE_REPOSITORY)
        missing = [file.path for file in files if present(file, folder=folder) is None]
        if missing:
            pytest.skip(f"{missing[0]} is not in {folder}; set FEDADMM_DATA to a folder with the published files")
        return folder

    return folder_with
