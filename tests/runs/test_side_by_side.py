"""Runs that are played at once, in processes: each has the bytes that it has alone."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import fedadmm
from fedadmm import Experiment, FedADMM, FedAvg, InputError
from fedadmm.api import running
from fedadmm.runs import side_by_side
from fedadmm.runs.check import check_run
from fedadmm.runs.listeners import Listener, OutOfTimeError
from fedadmm.runs.side_by_side import SideBySide, Told, processes_for

QUICK = Experiment(
    rounds=3, algorithm=FedADMM(), model={"name": "softmax_regression"}, data={"num_clients": 20}, local={"epochs": 1}
)
SEEDS = [QUICK.replace(seed=seed) for seed in range(3)]


def files_of(folder: Path) -> dict[str, Any]:
    """Return what a run folder has, without the seconds that it took."""
    rounds = [{**line, "seconds": 0} for line in (record.to_json() for record in fedadmm.open_run(folder).history)]
    return {"experiment": (folder / "experiment.toml").read_text(), "rounds": rounds} | {
        "model": (folder / "model.safetensors").read_bytes(),
        "theta": fedadmm.open_run(folder).theta.tolist(),
    }


def play(experiments: list[Experiment], out: Path, **options: Any) -> list[Any]:
    """Play runs in two processes."""
    return [*SideBySide(out, None, processes=2, **options).play(experiments)]


@pytest.mark.slow
def test_a_run_beside_others_has_the_files_of_one_alone_and_tells_of_every_round(tmp_path: Path) -> None:
    told: list[Told] = []
    ended = play(SEEDS, tmp_path / "beside", tell=told.append)
    for place, one in enumerate(SEEDS):
        alone = fedadmm.run(one, out=tmp_path / "alone", progress=False).folder
        assert files_of(tmp_path / "beside" / one.folder_name) == files_of(alone)
        assert [round.round for round in ended[place].history] == [1, 2, 3]
        of_run = [each for each in told if each.run == place]
        assert [each.round for each in of_run if not each.ended] == [0, 1, 2, 3]
        assert of_run[-1].ended
        assert of_run[-2].score.startswith("accuracy 0.")
    again = play(SEEDS, tmp_path / "beside")
    assert [one.rounds_before for one in again] == [3, 3, 3]


@pytest.mark.slow
def test_a_mistake_in_one_ends_all_with_its_sentence(tmp_path: Path) -> None:
    wrong = QUICK.replace(model={"name": "cnn1"})
    with pytest.raises(InputError, match="cnn1 takes inputs of shape 1x28x28"):
        play([wrong, SEEDS[1]], tmp_path)


@pytest.mark.slow
def test_time_that_is_up_at_the_very_end_leaves_no_thread_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for = threading.Thread.join
    before = threading.enumerate()

    def out_of_time(thread: threading.Thread, timeout: float | None = None) -> None:
        raise OutOfTimeError

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", out_of_time)
        with pytest.raises(OutOfTimeError):
            play(SEEDS[:2], tmp_path)
    for thread in set(threading.enumerate()) - set(before):
        wait_for(thread, timeout=30)
        assert not thread.is_alive()


class DiesOnce(Listener):
    """Kills the process that it is in after the second round, if nobody did so before."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def after_round(self, record: Any, simulation: Any) -> None:
        """Die in the second round."""
        if record.round == 2 and not self._trace.exists():
            self._trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_its_run_goes_on(tmp_path: Path) -> None:
    play(SEEDS[:2], tmp_path / "killed", listeners=[DiesOnce(tmp_path / "trace")])
    assert (tmp_path / "trace").exists()
    play(SEEDS[:2], tmp_path / "whole")
    for one in SEEDS[:2]:
        assert files_of(tmp_path / "killed" / one.folder_name) == files_of(tmp_path / "whole" / one.folder_name)
        assert check_run(tmp_path / "killed" / one.folder_name)


@pytest.mark.slow
def test_all_stop_after_their_round_when_that_is_asked_for(tmp_path: Path) -> None:
    told: list[Told] = []
    long = [one.replace(rounds=10_000) for one in SEEDS]
    begin = time.monotonic()
    ended = play(long, tmp_path, tell=told.append, asked=lambda: len(told) > 4)
    assert ended[2] is None  # the third one was not begun
    assert all(0 < len(one.history) < 10_000 for one in ended[:2])
    assert time.monotonic() - begin < 60
    more = [one.replace(rounds=len(run.history) + 1) for one, run in zip(long, ended[:2], strict=False)]
    assert [len(one.history) for one in play(more, tmp_path)] == [one.rounds for one in more]


@pytest.mark.parametrize(
    ("experiments", "expected"),
    [
        (SEEDS, 2),
        (SEEDS[:1], 1),  # alone, it has both cores to itself
        ([SEEDS[0], SEEDS[0]], 1),  # the second finds the first one's folder
        ([one.replace(engine="stacked") for one in SEEDS], 1),
        ([one.replace(workers=1) for one in SEEDS], 1),
        ([one.replace(state={"store": "memory"}) for one in SEEDS], 1),
        ([one.replace(device="cuda") for one in SEEDS], 1),
    ],
)
def test_runs_are_played_at_once_where_that_is_possible(
    experiments: list[Experiment], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "num_cores", lambda: 2)
    monkeypatch.setattr(side_by_side, "_memory", lambda: 2**40)
    assert processes_for(experiments) == expected
    in_memory = experiments[0].state.store == "memory"
    assert processes_for(experiments, records_only=True) == (2 if in_memory else expected)
    monkeypatch.setattr(side_by_side, "_memory", lambda: 2**30)
    assert processes_for(experiments) == 1


@pytest.mark.slow
def test_a_comparison_is_the_same_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = []
    for processes in (1, 2):
        monkeypatch.setattr(running, "processes_for", lambda _, processes=processes: processes)
        methods = [QUICK, QUICK.replace(algorithm=FedAvg())]
        tables.append(fedadmm.compare(methods, seeds=2, out=tmp_path / str(processes), progress=False))
    assert repr(tables[0]) == repr(tables[1])
    assert tables[1]["fedavg"].evaluate()["accuracy"] == tables[0]["fedavg"].evaluate()["accuracy"]
