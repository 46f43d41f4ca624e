"""A run that cannot write says so in one sentence, loses nothing, and goes on once it can."""

import os
import resource
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from killed_runs import Result, RunPlace


@pytest.mark.slow
@pytest.mark.parametrize("limit", [200_000, 3_000_000])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_afterwards(
    place: RunPlace, whole: Result, limit: int, out: str
) -> None:
    # A limit on the size of files stands in for a full disk; it hits the model, the creation, or a later round.
    assert place.run(out, before=partial(_limit_files, limit)) == 2
    assert "Traceback" not in place.said
    assert "fix that (is the disk full?) and run the same command again" in place.said
    assert place.run(out) == 0
    assert place.result(out) == whole


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_one_sentence_and_the_run_goes_on_afterwards(
    place: RunPlace, whole: Result, out: str
) -> None:
    assert place.run(out, "--rounds", 5) == 0
    lines = place.run_folder(out) / "rounds.jsonl"
    lines.unlink()
    lines.mkdir()
    assert place.run(out) == 2
    assert f"cannot write {lines}: Is a directory; fix that" in place.said
    assert "Traceback" not in place.said
    lines.rmdir()
    assert place.run(out) == 0
    assert place.result(out) == whole


def test_a_folder_that_cannot_be_written_is_one_sentence(place: RunPlace) -> None:
    # A file where a folder should be: it refuses root too, whom permissions do not stop.
    (place.folder / "file").write_text("")
    assert place.run("file/below") == 2
    assert "cannot write" in place.said
    assert "Traceback" not in place.said


@pytest.mark.slow
def test_a_read_only_folder_is_one_sentence_and_nothing_is_lost(whole: Result) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        place = RunPlace.made(Path(folder))
        assert place.run("out", "--rounds", 5) == 0
        _allow_writing(place.folder / "out", False)
        assert place.run("out", before=_be_nobody) == 2, place.said
        assert "cannot write" in place.said
        assert "Permission denied" in place.said
        assert "Traceback" not in place.said
        _allow_writing(place.folder / "out", True)
        assert place.run("out") == 0
        assert place.result("out") == whole


def _limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _allow_writing(folder: Path, allowed: bool) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o755 if path.is_dir() else 0o644) if allowed else (0o555 if path.is_dir() else 0o444))


def _be_nobody() -> None:
    """Become a user whom permissions stop, as they do not stop root, when the folder is first touched."""
    from fedadmm.runs.records import RunFolder

    lock = RunFolder.lock

    def lock_as_nobody(self: RunFolder) -> Any:
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        return lock(self)

    RunFolder.lock = lock_as_nobody  # type: ignore[method-assign, assignment]
