"""A slice of `make soak`: a run that is disturbed has the bytes of one that is not."""

from pathlib import Path

import pytest

from soak import Soak


@pytest.mark.slow
def test_a_run_that_is_disturbed_has_the_bytes_of_one_that_is_not(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=5)
    soak.lap()
    assert sum(soak.done.values()) > 2
