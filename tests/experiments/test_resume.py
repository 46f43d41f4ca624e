"""A run that is killed, interrupted, extended or short of disk ends with the bytes of one that never was."""

import os
import random
import resource
import signal
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from killed_runs import ROUNDS, RunPlace, die_in, ended, wait_for

from fedadmm.core.errors import InputError
from fedadmm.experiments import runner
from fedadmm.experiments.experiment import Experiment
from fedadmm.experiments.files import load_plan

Result = tuple[bytes, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> RunPlace:
    """Return a place in which `whole` is a run that was never interrupted."""
    place = RunPlace.made(tmp_path_factory.mktemp("resume"))
    assert place.run("whole") == 0
    return place


@pytest.fixture(scope="module")
def whole(place: RunPlace) -> Result:
    """Return the result of the run that was never interrupted."""
    result = place.result("whole")
    assert len(result[1]) == ROUNDS
    return result


@pytest.fixture
def out(request: pytest.FixtureRequest) -> str:
    """Return the name of a folder for this test's run."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "num_kills"), [("serial", 30), ("workers", 15)])
def test_a_run_killed_at_random_instants_ends_with_the_same_bytes(
    place: RunPlace, whole: Result, engine: str, num_kills: int
) -> None:
    rng = random.Random(0)
    kills = runs = 0
    while kills < num_kills:
        runs += 1
        kills += place.killed_again_and_again(f"{engine}{runs}", f"engine={engine}", rng=rng)
        assert place.result(f"{engine}{runs}") == whole
    print(f"{kills} kills in {runs} runs")


# What a process does from its first moment to its last: a call at which it is killed, before or after its work.
BEGINNING = [
    ("fedadmm.state.file:lmdb", "open", 1, "before"),
    ("fedadmm.state.file:lmdb", "open", 1, "after"),
    ("fedadmm.state.file:Tables", "put", 1, "after"),
    ("pathlib:Path", "rename", 1, "before"),
    ("pathlib:Path", "rename", 1, "after"),
]
ROUND = [
    ("fedadmm.state.disk:DiskStore", "_reclaim", 1, "before"),
    ("fedadmm.experiments.folder:RunFolder", "write_experiment", 1, "before"),
    ("fedadmm.experiments.folder:RunFolder", "write_records", 1, "after"),
    ("fedadmm.learning.sgd:SGDProblem", "solve", 3, "before"),
    ("fedadmm.state.file:StateFile", "stage", 3, "before"),
    ("fedadmm.state.file:StateFile", "stage", 6, "after"),
    ("fedadmm.state.disk:DiskStore", "commit", 2, "before"),
    ("fedadmm.state.file:Tables", "delete", 2, "after"),  # in the middle of a commit
    ("fedadmm.state.file:Tables", "put", 12, "after"),
    ("fedadmm.state.file:StateFile", "flush", 2, "before"),  # the round counts, and nobody knows it yet
    ("fedadmm.state.disk:DiskStore", "commit", 2, "after"),
    ("fedadmm.experiments.folder:RunFolder", "append_record", 2, "before"),
    ("fedadmm.experiments.folder:RunFolder", "append_record", 2, "after"),
]
END = [
    ("fedadmm.experiments.folder:RunFolder", "write_model", 1, "before"),
    ("fedadmm.experiments.folder:os", "fsync", 1, "after"),
]


@pytest.mark.slow
def test_a_run_killed_at_every_step_ends_with_the_same_bytes(
    place: RunPlace, whole: Result, out: str
) -> None:
    # The steps of a round twice: once they meet what the others left, once what they left themselves.
    for owner, name, call, when in [*BEGINNING, *(step for step in ROUND for _ in range(2)), *END]:
        code = place.run(out, before=die_in(owner, name, call=call, when=when))
        assert code == -signal.SIGKILL, (name, call, place.said)
    assert place.run(out) == 0, place.said
    assert place.result(out) == whole


@pytest.mark.slow
def test_a_line_cut_in_the_middle_and_files_that_are_gone_are_made_again(
    place: RunPlace, whole: Result, out: str
) -> None:
    process = place.start(out)
    wait_for(lambda: place.num_rounds(out) > 3)
    process.kill()
    ended(process)
    folder = place.run_folder(out)
    lines = (folder / "rounds.jsonl").read_text()
    (folder / "rounds.jsonl").write_text(lines[:-30])
    assert place.run(out) == 0
    assert place.result(out) == whole
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-7])
    (folder / "rounds.jsonl").unlink()
    assert place.run(out) == 0
    assert "are there already" in place.said
    assert place.result(out) == whole


def test_ctrl_c_finishes_the_round_and_says_how_to_resume(place: RunPlace, whole: Result, out: str) -> None:
    process = place.start(out)
    wait_for(lambda: place.num_rounds(out) > 2)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process) == 130
    done = place.num_rounds(out)
    assert 2 < done < ROUNDS
    assert "Finishing this round; Ctrl-C again stops at once" in place.said
    assert f"Stopped after {done} of {ROUNDS} rounds" in place.said
    assert "the same command goes on from there" in place.said
    assert place.run(out) == 0
    assert place.result(out) == whole


@pytest.mark.slow
def test_ctrl_c_twice_stops_at_once_and_loses_that_round_only(
    place: RunPlace, whole: Result, out: str
) -> None:
    process = place.start(out, before=_slow_training)
    wait_for(lambda: place.num_rounds(out) > 0)
    began = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    wait_for(lambda: "Finishing this round" in place.said)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process) == 130
    assert time.monotonic() - began < 0.9  # a round takes more than a second here
    assert "stopped at once; the same command goes on from the last whole round" in place.said
    assert place.run(out) == 0
    assert place.result(out) == whole


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["serial", "workers"])
def test_sigterm_stops_at_once_and_says_how_to_resume(
    place: RunPlace, whole: Result, out: str, engine: str
) -> None:
    options = ("--set", f"engine={engine}", "--set", "workers=2")
    process = place.start(out, *options, before=_slow_training)
    wait_for(lambda: place.num_rounds(out) > 0)
    process.terminate()
    assert ended(process) == 128 + signal.SIGTERM
    assert 0 < place.num_rounds(out) < ROUNDS
    assert "stopped at once; the same command goes on from the last whole round" in place.said
    assert "Traceback" not in place.said
    assert place.run(out, *options) == 0
    assert place.result(out) == whole


def test_a_finished_run_is_not_run_again(place: RunPlace, whole: Result) -> None:
    times = {
        file.name: file.stat().st_mtime_ns for file in place.run_folder("whole").iterdir() if file.is_file()
    }
    assert place.run("whole") == 0
    assert f"All {ROUNDS} rounds are there already" in place.said
    assert {name: (place.run_folder("whole") / name).stat().st_mtime_ns for name in times} == times


@pytest.mark.slow
def test_a_finished_run_that_is_extended_is_a_longer_run(place: RunPlace, whole: Result, out: str) -> None:
    assert place.run(out, "--rounds", 4) == 0
    assert place.run(out, "--rounds", ROUNDS) == 0
    assert place.result(out) == whole


@pytest.mark.slow
def test_a_second_process_on_the_same_folder_is_refused(place: RunPlace, whole: Result, out: str) -> None:
    first = place.start(out)
    wait_for(lambda: place.num_rounds(out) > 0)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = place.start(out)
        second.join(10)
        second.kill()  # what writes to the same store would wait for the first for ever
        assert ended(second) == 2
        assert "is in use by another process; wait for it, or give another --out" in place.said
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert ended(first) == 0
    assert place.result(out) == whole


@pytest.mark.slow
@pytest.mark.parametrize("limit", [200_000, 3_000_000])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_afterwards(
    place: RunPlace, whole: Result, limit: int, out: str
) -> None:
    # A limit on the size of files stands in for a full disk; it hits the model, the creation, or a later round.
    assert place.run(out, before=partial(_limit_files, limit)) == 2
    assert "Traceback" not in place.said
    assert "mend that (is the disk full?) and run the same command again" in place.said
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
    assert f"cannot write {lines}: Is a directory; mend that" in place.said
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


@pytest.mark.parametrize(
    ("key", "other"), [("experiment", "ffffffffff"), ("torch", "1.0.0"), ("fedadmm", "0.0.1")]
)
def test_a_folder_of_another_experiment_or_version_is_refused_with_the_reason(
    place: RunPlace, whole: Result, key: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = _experiment(place)
    ours = runner.identity_of(experiment)
    monkeypatch.setattr(runner, "identity_of", lambda _: ours | {key: other})
    with pytest.raises(
        InputError, match=f"written with {key} {ours[key]}, here it is {other}".replace("+", r"\+")
    ):
        runner.run(experiment, out=place.folder / "whole")
    assert place.result("whole") == whole


def test_a_folder_of_another_format_is_refused_with_the_reason(
    place: RunPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedadmm.state.disk.FORMAT", 2)
    with pytest.raises(InputError, match="was written with format 1, here it is 2"):
        runner.run(_experiment(place), out=place.folder / "whole")


def test_durability_does_not_change_the_result(place: RunPlace, whole: Result) -> None:
    assert place.run("power", "--set", "state.durability=power", "--rounds", 5) == 0
    assert place.result("power")[1] == whole[1][:5]


def _experiment(place: RunPlace) -> Experiment:
    return load_plan(str(place.folder / "plan.toml")).experiment()


def _limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _slow_training() -> None:
    from fedadmm.learning.sgd import SGDProblem

    solve = SGDProblem.solve

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.25)
        return solve(*arguments, **options)

    SGDProblem.solve = slow  # type: ignore[method-assign]


def _allow_writing(folder: Path, allowed: bool) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o755 if path.is_dir() else 0o644) if allowed else (0o555 if path.is_dir() else 0o444))


def _be_nobody() -> None:
    """Become a user whom permissions stop, as they do not stop root, when the folder is first touched."""
    from fedadmm.experiments.folder import RunFolder

    lock = RunFolder.lock

    def lock_as_nobody(self: RunFolder) -> Any:
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        return lock(self)

    RunFolder.lock = lock_as_nobody  # type: ignore[method-assign, assignment]
