"""Runs on a simulated clock: it changes when things happen, and what happens only where a deadline says so."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedadmm import Experiment, FedADMM, FedAvg, InputError, LocalTraining
from fedadmm.cli import app
from fedadmm.config.plans import load_plan, parse_changes
from fedadmm.network.devices import simulated_devices
from fedadmm.network.settings import Clock, Faults
from fedadmm.report.methods import SIMULATED, axes_of, methods_of
from fedadmm.report.runs import read_run
from fedadmm.report.table import comparison_rows
from fedadmm.runs.records import Record
from fedadmm.runs.runner import run
from play import identical
from run_folders import write_run
from small_runs import SIZES, outcome, simulation_of

SPEEDS = {"distribution": "log_uniform", "low": 5, "high": 100}
CLOCK = Clock(speed=SPEEDS, upload=1000.0, latency=0.1, availability={"period": 30, "share": 0.7})
ROUNDS = 4


def timeless(records):
    return [{k: v for k, v in record.items() if k != "simulated_seconds"} for record in records]


def test_a_clock_without_deadline_changes_nothing_but_the_time():
    plain = outcome(simulation_of(FedADMM(), engine="serial"), rounds=ROUNDS)
    clocked = outcome(simulation_of(FedADMM(), engine="serial", clock=CLOCK), rounds=ROUNDS)
    assert identical(clocked[:2], plain[:2])
    assert timeless(clocked[2]) == plain[2]
    assert all(record["simulated_seconds"] > 0 for record in clocked[2])
    assert not any("simulated_seconds" in record for record in plain[2])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["workers", "stacked"])
def test_every_engine_has_the_same_time_and_the_same_late_clients(engine):
    clock = CLOCK.replace(deadline=1.0, upload=1e6, availability=None)
    ours, serial = (
        outcome(simulation_of(FedADMM(), engine=name, clock=clock, model="mlp", workers=2), rounds=ROUNDS)[2]
        for name in (engine, "serial")
    )
    assert all(record["clients"] and record["lost"] for record in serial)
    keys = ("clients", "lost", "steps", "simulated_seconds")
    assert [[r.get(key) for key in keys] for r in ours] == [[r.get(key) for key in keys] for r in serial]


def test_a_late_client_does_less_or_is_lost_and_leaves_no_trace():
    # Two epochs of everyone: 14 examples and less at 10 a second, so 2.8 s at most and 0.6 s an epoch at least.
    everyone = {"participation": 1.0, "engine": "serial", "local": LocalTraining(epochs=2, batch_size=6)}
    clock = Clock(speed=10, deadline=1.7)
    _, states, records = outcome(simulation_of(FedADMM(), clock=clock.replace(late="drop"), **everyone), rounds=1)
    slow = tuple(client for client, size in enumerate(SIZES) if 2 * size / 10 > 1.7)
    assert records[0]["lost"] == slow == (1, 3, 5)
    assert records[0]["simulated_seconds"] == 1.7
    chosen = [client for client in range(8) if client not in slow]
    without = everyone | {"participation": lambda *_: chosen}
    assert identical(states, outcome(simulation_of(FedADMM(), **without), rounds=1)[1])

    _, _, records = outcome(simulation_of(FedADMM(), clock=clock, **everyone), rounds=1)
    assert "lost" not in records[0]
    assert records[0]["gradient_evaluations"] == sum(
        size * (1 if client in slow else 2) for client, size in enumerate(SIZES)
    )
    assert records[0]["simulated_seconds"] == pytest.approx(1.6)  # two epochs of 8 examples


@pytest.mark.parametrize(
    ("clock", "local", "seconds"),
    [
        ({}, {}, "6"),  # the smallest client has 6 examples, and does one epoch at 1 a second
        ({"late": "drop"}, {"epochs": 2}, "12"),
        ({"late": "drop"}, {"epochs": "2..9"}, "12"),
        ({"late": "drop"}, {"epochs": {"share": 0.5, "epochs": "2..3", "others": 4}}, "12"),
        ({"late": "drop"}, {"epochs": [3, 3, 5, 3, 3, 3, 4, 3]}, "24"),  # 8 examples, 3 epochs
        ({"latency": 2}, {}, "10"),
        ({}, {"seconds": 3}, "3"),  # the time for 3 gradients of those 6, at the clock's speed
    ],
)
def test_a_deadline_that_nobody_can_meet_is_refused_and_the_least_that_somebody_can_is_not(clock, local, seconds):
    def made(deadline):
        settings = Clock(speed=1, **clock, deadline=deadline)
        return simulation_of(FedAvg(), clock=settings, local=LocalTraining(**local), engine="serial")

    with pytest.raises(InputError, match=f"is met by no client: the quickest takes {seconds} seconds"):
        made(float(seconds) - 0.01)
    made(float(seconds)).close()


def test_a_device_has_one_speed_and_a_clocks_speed_is_that_of_local_seconds():
    speeds = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    options = {"engine": "serial", "clock": Clock(speed=speeds), "participation": 1.0}
    run = simulation_of(FedAvg(), local=LocalTraining(seconds=3.5), **options)
    assert [assignment.max_gradients for assignment in run.assignments(1)] == [3, 7, 10, 14, 17, 21, 24, 28]
    with pytest.raises(InputError, match=r"local\.speed=2\.0 beside a clock .*; leave out local\.speed"):
        simulation_of(FedAvg(), local=LocalTraining(seconds=3.5, speed=2.0), **options)
    with pytest.raises(InputError, match=r"seconds=3\.5 means nothing alone; give speed beside it, or a clock"):
        simulation_of(FedAvg(), local=LocalTraining(seconds=3.5), engine="serial")
    with pytest.raises(InputError, match=r"clock\.speed lists 2 numbers for 8 clients; give one for each"):
        simulation_of(FedAvg(), **options | {"clock": Clock(speed=[1, 2])})


def test_a_round_whose_clients_all_miss_the_deadline_is_told_once(caplog):
    # Client 5 has 14 examples, and comes alone.
    options = {"participation": lambda *_: [5], "engine": "serial", "clock": Clock(speed=1, deadline=9)}
    records = outcome(simulation_of(FedAvg(), **options), rounds=2)[2]
    assert [record["lost"] for record in records] == [(5,), (5,)]
    (told,) = caplog.messages
    assert told.startswith("round 1: none of its 1 clients can meet clock.deadline=9, so nothing is learned")


def test_a_run_that_nobody_ever_reached_says_so_at_its_end(tmp_path):
    hours = "clock.availability={period=1e6,share=0.001}"  # hardly anybody is on at the start
    told, _ = told_at_the_end(tmp_path, "clock.speed=10", "clock.deadline=5", hours)
    assert "Learned nothing in 2 rounds: no client ever met clock.deadline=5; raise it" in told


def test_faults_need_a_deadline_and_a_lost_answer_costs_all_of_it():
    faults = Faults(lose_replies=1.0)
    with pytest.raises(InputError, match="a server that waits for a lost answer waits forever"):
        simulation_of(FedADMM(), faults=faults, clock=CLOCK)
    clock = CLOCK.replace(deadline=50.0)
    records = outcome(simulation_of(FedADMM(), engine="serial", faults=faults, clock=clock), rounds=2)[2]
    assert [record["simulated_seconds"] for record in records] == [50.0, 50.0]


def test_a_clocked_run_goes_on_where_it_stopped(tmp_path):
    clock = CLOCK.replace(deadline=9.0)
    options = {"engine": "serial", "clock": clock}
    whole = outcome(simulation_of(FedADMM(), **options), rounds=ROUNDS)
    stopped = simulation_of(FedADMM(), folder=tmp_path / "state", **options)
    outcome(stopped, rounds=2)
    stopped._store.close()
    resumed = simulation_of(FedADMM(), folder=tmp_path / "state", **options)
    assert identical(outcome(resumed, rounds=ROUNDS - 2), whole)


def test_no_clock_leaves_the_hash_alone_and_a_clock_counts(tmp_path):
    plain = Experiment(algorithm=FedADMM())
    assert plain.hash == plain.replace(clock=None).hash == "9cf6c843ee"
    table = {"rounds": 2, "data": {"num_clients": 20}, "model": {"name": "softmax_regression"}}
    clocked = Experiment(**table, engine="serial", clock={"speed": SPEEDS, "deadline": 3})
    assert clocked.hash != Experiment(**table).hash
    assert clocked.hash != clocked.replace(clock=clocked.clock.replace(late="drop")).hash
    ended = run(clocked, out=tmp_path)
    assert ended.folder.read_experiment() == clocked
    assert [Record.from_json(line) for line in ended.folder.read_records()] == ended.history


def test_a_distribution_can_be_set_on_the_command_line_and_in_a_variant(tmp_path):
    changes = parse_changes(['clock.speed={distribution="uniform",low=1,high=2}', "clock.deadline=5"])
    assert load_plan("digits").experiment(changes=changes).clock.speed.high == 2.0
    (tmp_path / "plan.toml").write_text(
        'clock.speed = {distribution = "uniform", low = 1, high = 2}\n'
        '[variants.other]\nclock.speed = {distribution = "lognormal", median = 3, sigma = 1}\n'
    )
    assert load_plan(str(tmp_path / "plan.toml")).experiment("other").clock.speed.median == 3.0


def devices_file(folder: Path, *lines: str) -> Clock:
    (folder / "devices.csv").write_text("\n".join(lines) + "\n")
    return Clock(devices=str(folder / "devices.csv"), upload=7.0)


def test_devices_come_from_a_file_and_what_it_lacks_from_the_settings(tmp_path):
    clock = devices_file(tmp_path, "client, speed, latency", "1, 20, 0.5", "0, 10, 0")
    devices = simulated_devices(clock, seed=0, num_clients=2)
    assert devices.device(0) == (10.0, 7.0, float("inf"), 0.0)
    assert devices.device(1) == (20.0, 7.0, float("inf"), 0.5)


@pytest.mark.parametrize("name", ["speed", "upload", "download", "latency"])
def test_a_quantity_is_in_the_file_or_in_the_settings_not_in_both(tmp_path, name):
    clock = devices_file(tmp_path, f"client,speed,{name}" if name != "speed" else "client,speed", "0,1,1")
    sentence = f"devices.csv has a column {name}, and the clock has {name} too; leave out clock.{name}, or that"
    for value in (100.0, SPEEDS):
        with pytest.raises(InputError, match=sentence):
            simulated_devices(clock.replace(upload=None).replace(**{name: value}), seed=0, num_clients=1)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["speed", "1"], "has no column client; its first line names the columns, client, speed, upload"),
        (["client,latency", "0,1", "1,1"], "has no column speed, and the clock has no speed; give one"),
        (["client,velocity", "0,1"], "has a column 'velocity'; the columns are client, speed"),
        (["client,speed", "0,1"], "has no line for 1 of 2 clients, such as 1; add them"),
        (["client,speed", "0,1", "0,2"], "line 3: client 0 is there twice; leave one line out"),
        (["client,speed", "2,1"], "line 2: client='2' is not an id; they run from 0 to 1"),
        (["client,speed", "x,1"], "line 2: client='x' is not an id"),
        (["client,speed", "²,1"], "line 2: client='²' is not an id"),
        (["client,speed", "0,fast"], "line 2: speed='fast' is not a number from 0 on; fix it"),
        (["client,speed", "0"], "line 2: speed=None is not a number"),
        (["client,speed", "0,inf"], "line 2: speed='inf' is not a number"),
        (["client,speed", "0,0"], "line 2: speed=0 would take forever; use a number above 0"),
        ([""], "has no column client"),
    ],
)
def test_a_mistake_in_a_file_of_devices_is_one_sentence(tmp_path, lines, sentence):
    with pytest.raises(InputError, match=sentence):
        simulated_devices(devices_file(tmp_path, *lines), seed=0, num_clients=2)


def hours_of(folder: Path, *lines: str):
    (folder / "hours.csv").write_text("client,from,until\n" + "\n".join(lines) + "\n")
    clock = Clock(speed=1, availability={"period": 24, "trace": str(folder / "hours.csv")})
    return simulated_devices(clock, seed=0, num_clients=2)


def test_hours_come_from_a_file(tmp_path):
    devices = hours_of(tmp_path, "0,20,24", "1,0,24", "0,1,8")
    assert devices.hours(0).intervals == ((1.0, 8.0), (20.0, 24.0))
    assert devices.hours(1).intervals == ((0.0, 24.0),)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["0,1,8"], "has no line for 1 of 2 clients, such as 1"),
        (["0,8,1"], "line 2: from 8 until 1 is not within the period 0..24; fix it"),
        (["0,1,25"], "line 2: from 1 until 25 is not within the period 0..24"),
        (["0,1,8", "1,0,1", "0,7,9"], "client 0 is on from 7 and until 8, which overlap; join the lines"),
    ],
)
def test_a_mistake_in_a_file_of_hours_is_one_sentence(tmp_path, lines, sentence):
    with pytest.raises(InputError, match=sentence):
        hours_of(tmp_path, *lines)


def test_a_run_is_not_resumed_on_other_devices(tmp_path):
    lines = [f"{client},{client + 1}" for client in range(20)]
    clock = devices_file(tmp_path, "client,speed", *lines)
    table = {"rounds": 1, "data": {"num_clients": 20}, "model": {"name": "softmax_regression"}}
    run(Experiment(**table, engine="serial", clock=clock), out=tmp_path)
    devices_file(tmp_path, "client,speed", *lines[:-1], "19,100")
    with pytest.raises(InputError, match=r"devices\.csv .*rounds of the two do not mix"):
        run(Experiment(**table | {"rounds": 2}, engine="serial", clock=clock), out=tmp_path)


def test_the_settings_in_the_documentation_are_settings():
    text = (Path(__file__).parents[2] / "docs/CLOCK.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    clocks = [Experiment(**tomllib.loads(block)).clock for block in blocks]
    assert [clock.asynchronous is None for clock in clocks] == [True, False]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none\.csv"):
        simulation_of(FedAvg(), clock=Clock(devices=str(tmp_path / "none.csv")))


def test_reports_show_accuracy_against_simulated_time_where_all_have_a_clock(tmp_path):
    paths = [write_run(tmp_path / name, [0.2, 0.4, 0.6], label=name) for name in ("a", "b")]
    plain = methods_of([read_run(path) for path in paths])
    assert SIMULATED not in axes_of(plain)
    for path in paths:
        lines = (path / "rounds.jsonl").read_text().replace('"seconds": 0.5', '"seconds": 0.5, "simulated_seconds": 20')
        (path / "rounds.jsonl").write_text(lines)
    runs = [read_run(path) for path in paths]
    clocked = methods_of(runs)
    assert axes_of(clocked)[-1] == SIMULATED
    assert SIMULATED not in axes_of([clocked[0], plain[1]])
    assert SIMULATED.values(clocked[0]).tolist() == [20, 40, 60]
    assert [row["simulated time"] for row in comparison_rows(runs)] == ["60 s", "60 s"]


def test_without_a_target_the_costs_are_those_of_the_whole_run(tmp_path):
    path = write_run(tmp_path / "a", [0.2, 0.6, 0.4])
    lines = (path / "rounds.jsonl").read_text().replace('"seconds"', '"simulated_seconds": 1.25, "seconds"')
    (path / "rounds.jsonl").write_text(lines)
    keys = ("rounds", "upload", "simulated time")
    (row,) = comparison_rows([read_run(path)])
    assert [row[key] for key in keys] == ["2", "2.0 kB", "2.5 s"]  # 0.5 is reached in the second of three
    text = (path / "experiment.toml").read_text()
    (path / "experiment.toml").write_text(text.replace("target = 0.5\n", ""))
    (row,) = comparison_rows([read_run(path)])
    assert [row[key] for key in keys] == ["3", "3.0 kB", "3.8 s"]  # 3.75


def told_at_the_end(folder: Path, *changes: str) -> tuple[str, Path]:
    """Run two short rounds on the command line, and return what it printed and the run's folder."""
    quick = ("model.name=softmax_regression", "rounds=2", "local.epochs=1", "engine=serial", *changes)
    arguments = ["run", "digits", "--out", str(folder), *(part for key in quick for part in ("--set", key))]
    told = CliRunner().invoke(app, arguments).stdout
    (run_folder,) = folder.iterdir()
    return told, run_folder


def test_a_run_tells_its_simulated_time_at_its_end(tmp_path):
    told, folder = told_at_the_end(tmp_path, "clock.speed=1")
    seconds = sum(record.simulated_seconds for record in read_run(folder).rounds)
    assert f", in {seconds:.0f} s of simulated time: {folder}" in told.replace("\n", "")
