"""What all tests share: the same examples in every run, one thread, and the published data where it is at hand."""

import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import torch

from browser import driver  # noqa: F401 - a fixture of several rooms
from fedadmm.core.engine import num_cores
from fedadmm.data.files import DataFile, present

hypothesis.settings.register_profile("same_examples", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("same_examples")
torch.set_num_threads(1)

# What has tests that take half a minute: these are begun first, so that no process is left with one at the end.
_LONGEST = ("test_site.py", "test_readme.py", "test_sinks.py", "test_notebook.py", "test_workers.py", "test_check.py")
_BESIDE_THE_REPOSITORY = Path(__file__).parents[2] / "shared" / "data"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use all cores for a plain `pytest`, and this process alone where tests are named: two more would start first."""
    return 0 if any(not part.startswith("-") for part in config.invocation_params.args) else num_cores()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


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
