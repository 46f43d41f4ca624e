"""What a failing, an interrupted or a second command leaves of a run: all of its rounds."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

import fedadmm
import fedadmm.cli
from fedadmm import Experiment, InputError, Simulation
from fedadmm.cli.progress import how_it_ended
from fedadmm.network.settings import Clock, Faults
from fedadmm.report.runs import read_run
from fedadmm.runs.records import RunFolder
from fedadmm.runs.runner import run
from fedadmm.state import file as state_file
from play import identical
from worlds import made, perceptron, some_data

BASE: dict[str, Any] = {
    "name": "mem",
    "rounds": 2,
    "participation": 0.5,
    "engine": "serial",
    "model": {"name": "softmax_regression"},
    "data": {"name": "digits", "num_clients": 4},
    "local": {"epochs": 1},
}
IN_MEMORY = {"state": {"store": "memory"}}


def files_of(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_run_in_memory_does_not_write_over_one_on_disk(tmp_path: Path) -> None:
    folder = run(Experiment(**BASE), out=tmp_path).folder
    files = files_of(folder.path)
    with pytest.raises(
        InputError, match=r'has a run whose state is on disk, and a run with state\.store="memory" would'
    ):
        run(Experiment(**BASE | IN_MEMORY), out=tmp_path)
    assert files_of(folder.path) == files


@pytest.fixture
def picky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return settings of a run that fails in round 1 while there is a file `fail`."""
    (tmp_path / "picky.py").write_text(
        "from pathlib import Path\n\ndef pick(round, generator, devices):\n"
        f"    if Path({str(tmp_path / 'fail')!r}).exists():\n        raise ValueError('no')\n    return [0, 1]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "picky", raising=False)
    return BASE | {"participation": "picky:pick"}


@pytest.mark.parametrize("state", [{}, IN_MEMORY], ids=["disk", "memory"])
def test_a_run_that_fails_takes_nothing_away_but_what_it_made(state: Any, picky: Any, tmp_path: Path) -> None:
    experiment, out, fail = Experiment(**picky | state), tmp_path / "out", tmp_path / "fail"
    fail.touch()
    with pytest.raises(InputError, match="participation picky:pick"):
        run(experiment, out=out)
    assert list(out.iterdir()) == []  # a mistake that came out before a round counts
    fail.unlink()
    folder = run(experiment, out=out).folder
    fail.touch()
    with pytest.raises(InputError, match="participation picky:pick"):
        run(experiment.replace(rounds=4), out=out)
    assert folder.model.exists()
    if not state:
        assert len(folder.read_records()) == 2


def test_a_stopped_run_in_memory_is_not_told_to_go_on(tmp_path: Path) -> None:
    for state, then in (({}, "goes on from there"), (IN_MEMORY, "begins anew, as state.store is in memory")):
        experiment = Experiment(**BASE | state)
        stopped = fedadmm.run(experiment, out=tmp_path / then, progress=False, callbacks=[lambda *_: True])
        assert (
            f"Stopped after 1 of 2 rounds, best accuracy {stopped.best:.3f}; the same command {then}."
            in how_it_ended(stopped)
        )


def test_a_folder_that_was_removed_while_one_waited_is_made_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        folder.remove()
        with folder.lock():  # of the folder that is there now
            assert (folder.path / "lock").exists()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (lmdb.Error("mdb_env_copy3: File too large"), "cannot write .*copy: mdb_env_copy3: File too large; fix that"),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot write .*copy: .*No space left on device; fix that"),
        (lmdb.CorruptedError("wrong"), r"the store in .*state is damaged \(wrong\)"),
    ],
)
def test_a_copy_that_cannot_be_written_is_not_damage(
    error: Exception, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run(Experiment(**BASE), out=tmp_path).folder

    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(state_file.lmdb, "open", failing)
    with pytest.raises(InputError, match=sentence):
        state_file.copy_store(folder.state, tmp_path / "copy")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"faults": Faults(lose_replies=0.3, duplicate=0.3, delay=0.3)},
        {"clock": Clock(speed=10.0, upload=1e6, download=1e6, asynchronous={"buffer": 2})},
    ],
    ids=["plain", "faults", "asynchronous"],
)
def test_a_round_that_was_interrupted_is_played_again(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def played(interrupted: int) -> Simulation:
        simulation = Simulation(
            fedadmm.FedADMM(rho=0.5),
            model=made(perceptron),
            data=some_data([8, 10, 6, 12, 8, 9]),
            local=fedadmm.LocalTraining(epochs=2, batch_size=4, learning_rate=0.1),
            participation=0.6,
            seed=0,
            engine="serial",
            **options,
        )
        for round in range(1, 6):
            if round == interrupted:
                with monkeypatch.context() as patched:
                    patched.setattr(Simulation, "_scores", interrupt)
                    with pytest.raises(KeyboardInterrupt):
                        simulation.advance()
            simulation.advance()
        return simulation

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    assert identical(played(3).checkpoint, played(0).checkpoint)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ('"lost": 3, "round": ', "line 1 of rounds.jsonl has lost=3"),
        ('"client_quantiles": {"accuracy": 3}, "round": ', "line 1 of rounds.jsonl has client_quantiles="),
        ('"extra": Infinity, "round": ', "line 1 of rounds.jsonl has extra=inf"),
    ],
)
def test_an_odd_record_is_a_sentence(change: str, sentence: str, tmp_path: Path) -> None:
    folder = run(Experiment(**BASE), out=tmp_path).folder.path
    text = (folder / "rounds.jsonl").read_text()
    (folder / "rounds.jsonl").write_text(text.replace('"round": ', change, 1))
    with pytest.raises(InputError, match=sentence):
        read_run(folder)


def test_a_disk_that_cannot_be_written_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing() -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), "page.html")

    monkeypatch.setattr(fedadmm.cli, "app", failing)
    with pytest.raises(SystemExit) as ended:
        fedadmm.cli.main()
    assert ended.value.code == 2
    assert "cannot use page.html: File too large; correct that, and run the same command" in capsys.readouterr().err
