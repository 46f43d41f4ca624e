"""A run folder remembers the arithmetic of its engine, and rounds of two arithmetics never mix."""

from pathlib import Path

import pytest

from fedadmm import Experiment, InputError, Simulation
from fedadmm.core.engine import state_types
from fedadmm.engine.choice import Choice, settings_for
from fedadmm.runs import runner
from fedadmm.state.disk import DiskStore
from ray_here import use_ray_here

TABLE = {"data": {"num_clients": 20}, "model": {"name": "softmax_regression"}, "local": {"epochs": 1}}


def play(out: Path, *, engine: str, rounds: int, workers: int = 2) -> runner.Run:
    return runner.run(Experiment(**TABLE, engine=engine, workers=workers, rounds=rounds), out=out)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and "lock" not in path.name
    }


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ("serial", "stacked", r'arithmetic exact, here it is stacked, .*; use engine = "workers" or "serial", or give'),
        (
            "stacked",
            "workers",
            r'arithmetic stacked, here it is exact, .*; use engine = "stacked", or give another --out',
        ),
    ],
)
def test_a_run_is_not_resumed_in_another_arithmetic_and_nothing_is_written(tmp_path, first, second, sentence) -> None:
    play(tmp_path, engine=first, rounds=2)
    before = files(tmp_path)
    with pytest.raises(InputError, match=sentence):
        play(tmp_path, engine=second, rounds=4)
    assert files(tmp_path) == before
    assert len(play(tmp_path, engine=first, rounds=3).history) == 3


@pytest.mark.slow
def test_serial_and_workers_are_one_arithmetic(tmp_path: Path) -> None:
    play(tmp_path / "mixed", engine="serial", rounds=2)
    mixed = play(tmp_path / "mixed", engine="workers", rounds=4)
    whole = play(tmp_path / "whole", engine="serial", rounds=4)
    assert [record.loss for record in mixed.history] == [record.loss for record in whole.history]


def test_the_arithmetic_of_ray_is_in_the_number_of_its_shares() -> None:
    assert Choice("ray", None, 3).arithmetic == "ray with 3 shares"
    assert settings_for("ray with 3 shares") == 'engine = "ray" and workers = 3'


def test_a_ray_run_is_not_resumed_with_another_number_of_shares(tmp_path: Path, monkeypatch) -> None:
    # The mean of three shares' means is grouped otherwise than that of two.
    use_ray_here(monkeypatch, num_cpus=3)
    play(tmp_path, engine="ray", workers=2, rounds=2)
    before = files(tmp_path)
    sentence = r'ray with 2 shares, here it is ray with 3 shares, .*; use engine = "ray" and workers = 2, or give'
    with pytest.raises(InputError, match=sentence):
        play(tmp_path, engine="ray", workers=3, rounds=4)
    assert files(tmp_path) == before
    assert len(play(tmp_path, engine="ray", workers=2, rounds=3).history) == 3


def test_a_folder_without_an_arithmetic_is_of_another_version(tmp_path: Path, monkeypatch) -> None:
    # As 0.1.0 wrote it: its version is looked at first.
    with monkeypatch.context() as patch:
        patch.setattr(runner, "version", lambda _: "0.1.0")
        experiment = Experiment(**TABLE, rounds=1, engine="serial")
        old = {k: v for k, v in runner.identity_of(experiment, arithmetic="-").items() if k != "arithmetic"}
        patch.setattr(runner, "identity_of", lambda *_, **__: old)
        folder = runner.run(experiment, out=tmp_path).folder
    about = DiskStore(folder.state, types=state_types(experiment.algorithm), identity=None, readonly=True).about
    assert "arithmetic" not in about
    monkeypatch.setattr(runner, "version", lambda _: "0.2.0")
    with pytest.raises(InputError, match=r"was written with fedadmm 0\.1\.0, here it is 0\.2\.0, .*; go on with what"):
        runner.run(experiment, out=tmp_path)


def test_an_option_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"a simulation has no option 'engin'; did you mean engine?"):
        Simulation(Experiment().algorithm, model="mlp", data=_Data(), engin="serial")


class _Data:
    num_clients = 1
