"""A run that cannot write says so in one sentence, loses nothing, and goes on once it can."""

import ctypes
import os
import resource
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from killed_runs import Result, RunPlace
from soak import may_mount


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("want", ["shared memory", "handles"])
def test_want_of_shared_memory_or_handles_is_one_sentence_and_the_run_goes_on_afterwards(
    place: RunPlace, whole: Result, want: str, out: str
) -> None:
    before = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (24, 24))
    if want == "shared memory":
        before = _fill_shared_memory
        if not may_mount():
            pytest.skip("only who may mount can have a full /dev/shm of their own")
    assert place.run(out, "--set", "engine=workers", "--set", "workers=2", before=before) == 2
    assert "Traceback" not in place.said
    assert "cannot start 2 worker processes" in place.said
    assert "free /dev/shm, allow more open files (ulimit -n), use fewer workers" in place.said
    assert not (place.folder / out).exists() or not list((place.folder / out).iterdir())
    assert place.run(out) == 0
    assert place.result(out) == whole


def _limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _fill_shared_memory() -> None:
    """Give this process a /dev/shm of its own, which has a page of room."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, private = 0x00020000, 0x4000 | 0x40000  # CLONE_NEWNS; MS_REC, MS_PRIVATE
    assert libc.unshare(new_mounts) == 0
    assert libc.mount(b"none", b"/", None, private, None) == 0
    assert libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=4k") == 0


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
