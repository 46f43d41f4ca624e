"""Records for other tools: each sink holds every round once, and the run does not notice."""

import json
import math
import struct
import sys

import pytest

from commands import fedadmm, from_the_start
from fedadmm import InputError
from fedadmm.config.plans import load_plan
from fedadmm.runs.listeners import Callback
from fedadmm.runs.records import Record
from fedadmm.runs.runner import run
from fedadmm.runs.sinks import SINKS, Sink, numbers_of, sinks_from

QUICK = {"model.name": "softmax_regression", "local.epochs": 1, "engine": "serial"}
NAME = "digits-fedavg-*"


class Heard(Sink):
    """A sink that remembers what it was told."""

    def __init__(self, experiment, out):
        super().__init__(experiment, out / experiment.folder_name)
        self.rounds, self.closed = [], 0

    def open(self):
        assert (self._folder / "experiment.toml").exists()

    def write(self, record):
        self.rounds.append(record.round)

    def ended(self):
        self.closed += 1


def test_a_sink_hears_every_round_once_and_is_closed(tmp_path):
    experiment = load_plan("digits").experiment("fedavg", changes=QUICK | {"rounds": 2})
    first, second = Heard(experiment, tmp_path), Heard(experiment, tmp_path)
    run(experiment, out=tmp_path, listeners=[first])
    run(experiment.replace(rounds=3), out=tmp_path, listeners=[second])
    assert (first.rounds, second.rounds) == ([1, 2], [1, 2, 3])
    assert (first.closed, second.closed) == (1, 1)


def test_a_sink_is_closed_when_the_run_breaks_off(tmp_path):
    def stop(record, simulation):
        raise KeyboardInterrupt

    experiment = load_plan("digits").experiment("fedavg", changes=QUICK | {"rounds": 2})
    heard = Heard(experiment, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path, listeners=[heard, Callback(stop)])
    assert (heard.rounds, heard.closed) == ([1], 1)


def test_what_is_none_is_left_out_and_clients_are_counted():
    record = Record(1, None, 0.5, None, (3, 4), (5,), 6, 7, 8, 9, 0.25, (6,), {"top": 0.75})
    assert numbers_of(record) == {
        "loss": 0.5,
        "clients": 2,
        "refused": 1,
        "lost": 1,
        "steps": 6,
        "gradient_evaluations": 7,
        "bytes_up": 8,
        "bytes_down": 9,
        "seconds": 0.25,
        "top": 0.75,
    }


def test_a_name_that_is_no_sink_is_refused():
    assert sinks_from("") == []
    with pytest.raises(InputError, match="log-to='paper' is unknown; use one or more of tensorboard,wandb,mlflow"):
        sinks_from("paper")


@pytest.mark.slow
@pytest.mark.parametrize("name", SINKS)
def test_a_missing_extra_is_named_with_its_remedy(monkeypatch, name):
    monkeypatch.setitem(sys.modules, SINKS[name][1][-1], None)
    with pytest.raises(InputError, match=rf'which is not installed; pip install "fedadmm\[{name}\]"'):
        sinks_from(name)


def in_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in ("accuracy", "bytes_up")}


def in_wandb(folder):
    from wandb.proto.wandb_internal_pb2 import Record as Line

    (file,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    found = {"accuracy": [], "bytes_up": []}
    for data in log_entries(file.read_bytes()):
        line = Line()
        line.ParseFromString(data)
        for item in line.history.item:
            name = item.key or item.nested_key[0]
            if name in found:
                found[name].append((line.history.step.num, json.loads(item.value_json)))
    return found


def log_entries(content):
    """Yield the entries of a log in LevelDB's format: blocks of 32 KiB, each piece behind checksum, length, kind."""
    position, entry = 7, b""  # behind the file's own header
    while position + 7 <= len(content):
        left = 32768 - position % 32768
        if left < 7:  # too little for a piece: the block is filled up
            position += left
            continue
        length, kind = struct.unpack_from("<HB", content, position + 4)
        entry += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # the whole entry, or its last piece
            yield entry
            entry = b""


def in_mlflow(folder, file="mlflow.db"):
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(folder / file)) as database:
        assert database.execute("select value from params where key = 'algorithm.name'").fetchall() == [("fedavg",)]
        assert database.execute("select name, status from runs").fetchall() == [(folder.name, "FINISHED")]
        rows = database.execute("select key, step, value from metrics order by step").fetchall()
    return {name: [row[1:] for row in rows if row[0] == name] for name in ("accuracy", "bytes_up")}


@pytest.mark.slow
@pytest.mark.deployment
def test_real_sinks_hold_every_round_once_and_leave_the_run_alone(tmp_path, monkeypatch):
    """Two rounds without a sink, two more with all of them, and a fifth after that, against one run without.

    A run that has ended can be logged too, and somewhere else: MLflow hears of it again.
    """
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    quick = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    command = ["run", "digits", "--variant", "fedavg", *quick]
    for rounds, out in ((5, "plain"), (2, "b")):
        done = fedadmm(*command, "--rounds", rounds, "--out", out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    logged = [
        (4, "tensorboard, wandb,mlflow", {}),
        (5, "tensorboard, wandb,mlflow", {}),
        (5, "mlflow", {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/elsewhere.db"}),
    ]
    done = from_the_start(
        *([where, *command, "--rounds", str(rounds), "--out", "b", "--log-to", to] for rounds, to, where in logged),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    ((plain,), (logged,)) = ((tmp_path / out).glob(NAME) for out in ("plain", "b"))
    assert plain.name == logged.name
    for file in ("experiment.toml", "model.safetensors"):
        assert (plain / file).read_bytes() == (logged / file).read_bytes()
    rounds = [json.loads(line) for line in (logged / "rounds.jsonl").read_text().splitlines()]
    assert len(rounds) == 5
    for read in (in_tensorboard, in_wandb, in_mlflow):
        found = read(logged)
        for name, points in found.items():
            assert [step for step, _ in points] == [1, 2, 3, 4, 5], (read.__name__, name)
            expected = [record[name] for record in rounds]
            assert all(math.isclose(v, e, rel_tol=1e-6) for (_, v), e in zip(points, expected, strict=True)), (
                read.__name__
            )
    assert in_mlflow(logged, tmp_path / "elsewhere.db") == in_mlflow(logged)


def test_pandas_reads_the_rounds_in_one_line(tmp_path):
    import pandas

    ended = run(load_plan("digits").experiment("fedavg", changes=QUICK | {"rounds": 2}), out=tmp_path)
    table = pandas.read_json(ended.folder.path / "rounds.jsonl", lines=True)
    assert list(table["round"]) == [1, 2]
    # Its reader is quick rather than exact: it is off in the last digits.
    assert list(table["accuracy"]) == pytest.approx([record.accuracy for record in ended.history], rel=1e-12)
