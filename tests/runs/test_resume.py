"""A run that is killed, interrupted or extended ends with the bytes of one that never was."""

import os
import random
import signal
import time
from typing import Any

import pytest

from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import load_plan
from fedadmm.core.errors import InputError
from fedadmm.runs import runner
from killed_runs import ROUNDS, Result, RunPlace, die_in, ended, wait_for


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "num_kills"), [("serial", 12), ("workers", 8)])
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
    ("pathlib:Path", "replace", 1, "before"),
    ("pathlib:Path", "replace", 1, "after"),
]
ROUND = [
    ("fedadmm.state.disk:DiskStore", "_delete_states", 1, "before"),
    ("fedadmm.runs.records:RunFolder", "write_experiment", 1, "before"),
    ("fedadmm.runs.records:RunFolder", "write_records", 1, "after"),
    ("fedadmm.training.problem:SGDProblem", "solve", 3, "before"),
    ("fedadmm.state.file:StateFile", "stage", 3, "before"),
    ("fedadmm.state.file:StateFile", "stage", 6, "after"),
    ("fedadmm.state.disk:DiskStore", "commit", 2, "before"),
    ("fedadmm.state.file:Tables", "delete_state", 2, "after"),  # in the middle of a commit
    ("fedadmm.state.file:Tables", "put", 12, "after"),
    ("fedadmm.state.file:StateFile", "flush", 2, "before"),  # the round counts, and nobody knows it yet
    ("fedadmm.state.disk:DiskStore", "commit", 2, "after"),
    ("fedadmm.runs.records:RunFolder", "append_record", 2, "before"),
    ("fedadmm.runs.records:RunFolder", "append_record", 2, "after"),
]
END = [("fedadmm.runs.export:StoredModel", "of", 1, "before"), ("fedadmm.core.files:os", "fsync", 1, "after")]


@pytest.mark.slow
def test_a_run_killed_at_every_step_ends_with_the_same_bytes(place: RunPlace, whole: Result, out: str) -> None:
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


@pytest.mark.slow
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
def test_ctrl_c_twice_stops_at_once_and_loses_that_round_only(place: RunPlace, whole: Result, out: str) -> None:
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
def test_sigterm_stops_at_once_and_says_how_to_resume(place: RunPlace, whole: Result, out: str, engine: str) -> None:
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


@pytest.mark.slow
def test_a_finished_run_is_not_run_again(place: RunPlace, whole: Result) -> None:
    times = {file.name: file.stat().st_mtime_ns for file in place.run_folder("whole").iterdir() if file.is_file()}
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


@pytest.mark.parametrize(("key", "other"), [("experiment", "ffffffffff"), ("torch", "1.0.0"), ("fedadmm", "0.0.1")])
def test_a_folder_of_another_experiment_or_version_is_refused_with_the_reason(
    place: RunPlace, whole: Result, key: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = _experiment(place)
    ours = runner.identity_of(experiment, arithmetic="exact")
    monkeypatch.setattr(runner, "identity_of", lambda _, **__: ours | {key: other})
    with pytest.raises(InputError, match=f"written with {key} {ours[key]}, here it is {other}".replace("+", r"\+")):
        runner.run(experiment, out=place.folder / "whole")
    assert place.result("whole") == whole


def test_a_folder_of_another_format_is_refused_with_the_reason(
    place: RunPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedadmm.state.file.FORMAT", 3)
    monkeypatch.setattr("fedadmm.state.file.FORMATS", {"3"})
    with pytest.raises(InputError, match="was written with format 2, here it is 3"):
        runner.run(_experiment(place), out=place.folder / "whole")


@pytest.mark.slow
def test_durability_does_not_change_the_result(place: RunPlace, whole: Result) -> None:
    assert place.run("power", "--set", "state.durability=power", "--rounds", 5) == 0
    assert place.result("power")[1] == whole[1][:5]


def _experiment(place: RunPlace) -> Experiment:
    return load_plan(str(place.folder / "plan.toml")).experiment()


def _slow_training() -> None:
    from fedadmm.training.problem import SGDProblem

    solve = SGDProblem.solve

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.25)
        return solve(*arguments, **options)

    SGDProblem.solve = slow  # type: ignore[method-assign]
