"""The files that figures are written to."""

import threading
from pathlib import Path

import numpy as np
import pytest

from fedadmm.data.shown import Counted, draw_counted
from fedadmm.report.figures import saved_beside

FIGURE = draw_counted(Counted(np.array([[1, 2], [3, 4]]), "class"), title="two clients")


@pytest.mark.slow
def test_a_figure_is_written_beside_the_block(tmp_path: Path) -> None:
    with saved_beside(FIGURE, tmp_path / "figures" / "a.pdf"):
        pass
    assert (tmp_path / "figures" / "a.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_a_figure_is_written_after_the_block_where_other_threads_run(tmp_path: Path) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with saved_beside(FIGURE, tmp_path / "a.pdf"):
            assert not (tmp_path / "a.pdf").exists()
    finally:
        done.set()
        thread.join()
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_the_error_of_the_other_process_is_raised_here(tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("not a folder")
    with pytest.raises(FileExistsError), saved_beside(FIGURE, tmp_path / "figures" / "a.pdf"):
        pass
