"""`fedadmm check` finds what is wrong with a run folder, and `fedadmm export` takes out what is in it."""

import json
import os
import re
import shutil
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from children import command
from fedadmm import InputError
from fedadmm.cli.export import export_command
from fedadmm.config.experiment import Experiment
from fedadmm.core.engine import state_types
from fedadmm.core.optional import imbalance, invariant_of
from fedadmm.report.runs import read_run
from fedadmm.runs.check import Finding, check_run, findings, read_findings
from fedadmm.runs.records import RunFolder
from fedadmm.runs.runner import run
from fedadmm.state.disk import DiskStore
from fedadmm.state.pages import read_layout
from fedadmm.studies.certify import certify_run
from killed_runs import ended
from methods import METHODS, mostly_slow
from worlds import quadratic_world


def _experiment(algorithm: str = "fedadmm, participation", **changes: object) -> Experiment:
    return Experiment(
        name="small",
        rounds=6,
        participation=0.3,
        engine="serial",
        algorithm=METHODS[algorithm],
        model={"name": "softmax_regression"},
        data={"name": "digits", "num_clients": 10},
        **changes,
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sound run folder."""
    return run(_experiment(), out=tmp_path_factory.mktemp("runs")).folder.path


def _fedadmm(*arguments: object, log: Path) -> tuple[int, str]:
    """Return the exit code of a command, and what it printed as one line."""
    code = ended(command(*arguments, log=log))
    return code, " ".join(log.read_text().split())


def _problems(folder: Path) -> list[str]:
    return [finding.text for finding in findings(folder) if finding.kind == "problem"]


def _flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 4
    file.write_bytes(data)


@pytest.mark.slow
def test_a_sound_folder_is_well_and_says_what_it_holds(sound: Path, tmp_path: Path) -> None:
    code, said = _fedadmm("check", sound, log=tmp_path / "log")
    assert code == 0, said
    for part in ("format 2", "6 of 6", "bytes, float32", f"torch {torch.__version__}", "All is well", "in step"):
        assert part in said
    assert "theta is the mean of the clients' up to" in said


@pytest.mark.slow
def test_a_damaged_state_is_exit_code_2_and_names_the_client(folder: Path) -> None:
    file = folder / "state" / "data.mdb"
    entry = read_layout(file).entries["states"][2]
    _flip(file, entry.value_start + entry.value_size // 2)
    code, said = _fedadmm("check", folder, log=folder.parent / "log")
    assert code == 2
    client = struct.unpack(">Q", entry.key[:8])[0]
    assert f"the state of client {client} in" in said
    assert "restore the run folder from a copy" in said
    assert "Traceback" not in said


def test_damage_to_lmdbs_own_pages_is_said_to_be_that(folder: Path) -> None:
    _flip(folder / "state" / "data.mdb", 4096 + 16 + 120)  # the last page, in a meta page
    _flip(folder / "state" / "data.mdb", 16 + 120)
    (problem,) = _problems(folder)
    assert problem.startswith("the store in")
    assert "is damaged" in problem


def _one_fact_and_then(end: Callable[[], None]) -> Callable[[Path], Iterator[Finding]]:
    def look(path: Path) -> Iterator[Finding]:
        yield Finding("fact", "format", "1")
        end()

    return look


def test_a_reader_that_dies_means_that_the_store_is_damaged(sound: Path) -> None:
    report = read_findings(_one_fact_and_then(lambda: os.kill(os.getpid(), signal.SIGKILL)), sound)
    assert report.facts == {"format": "1"}
    assert report.problems[0].startswith("the store is damaged: its reader died (exit code -9); restore")
    report = read_findings(_one_fact_and_then(lambda: struct.unpack(">Q", b"")), sound)
    assert report.facts == {"format": "1"}
    assert "its reader died (error: unpack requires a buffer of 8 bytes); restore" in report.problems[0]


def test_a_check_reads_in_a_process_of_its_own(sound: Path) -> None:
    assert check_run(sound).facts["rounds"] == "6 of 6"
    report = read_findings(lambda path: iter([Finding("fact", "process", str(os.getpid())), Finding("end", "")]), sound)
    assert report.facts != {"process": str(os.getpid())}
    assert report.problems == []


def test_a_lagging_file_is_no_damage_and_one_that_is_ahead_is(folder: Path) -> None:
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    (folder / "model.safetensors").unlink()
    facts = {finding.name: finding.text for finding in findings(folder)}
    assert _problems(folder) == []
    assert facts["rounds.jsonl"] == "at round 3, the next run brings it to round 6"
    assert facts["model.safetensors"] == "not there, the next run brings it to round 6"
    ahead = json.loads(lines[-1]) | {"round": 7}
    (folder / "rounds.jsonl").write_text("".join([*lines, json.dumps(ahead) + "\n"]))
    (problem,) = _problems(folder)
    assert "rounds.jsonl is not that of the store" in problem


def test_a_changed_record_or_model_is_found(folder: Path) -> None:
    text = (folder / "rounds.jsonl").read_text()
    (folder / "rounds.jsonl").write_text(text.replace('"round": 2,', '"round": 2, "extra": 1,'))
    model = folder / "model.safetensors"
    _flip(model, model.stat().st_size - 1)
    problems = _problems(folder)
    assert ["rounds.jsonl" in problems[0], "model.safetensors" in problems[1]] == [True, True]


def _with_another_state(folder: Path, experiment: Experiment) -> int:
    """Replace a client's state by another sound one, and return the client."""
    store = DiskStore(folder / "state", types=state_types(experiment.algorithm), identity=None)
    client = next(iter(store))
    state = store.get(client)
    changed = [field + 0.01 if isinstance(field, torch.Tensor) else field for field in state]
    store.stage(store.round_of(client), client, type(state)(*changed))
    store.close()
    return client


@pytest.mark.parametrize("weighting", mostly_slow(["equal", "examples"], plain=["examples"]))
@pytest.mark.parametrize("algorithm", ["fedadmm, participation", "fedadmm, seen", "scaffold", "feddyn", "feddyn, seen"])
def test_the_invariant_holds_until_a_state_is_another(algorithm: str, weighting: str, tmp_path: Path) -> None:
    experiment = _experiment(algorithm, weighting=weighting).replace(
        data={"name": "digits", "num_clients": 10, "partition": "imbalanced"}
    )
    folder = run(experiment, out=tmp_path).folder.path
    assert _problems(folder) == []
    _with_another_state(folder, experiment)
    (problem,) = _problems(folder)
    assert "is the mean of the clients' up to" in problem


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "rounds"), [("fedadmm, participation", 200), ("fedadmm, seen", 250), ("fedadmm_auto", 200)]
)
def test_a_client_rolled_back_by_one_visit_is_found_late_in_a_run(algorithm: str, rounds: int, tmp_path: Path) -> None:
    experiment = _experiment(algorithm, local={"epochs": 1}, evaluate_every=100).replace(
        data={"name": "digits", "num_clients": 50}, participation=0.1
    )
    folder = run(experiment.replace(rounds=rounds - 10), out=tmp_path).folder.path
    store = DiskStore(folder / "state", types=state_types(experiment.algorithm), identity=None)
    before = {client: store.get(client) for client in store}
    store.close()
    ended = run(experiment.replace(rounds=rounds), out=tmp_path)
    assert _problems(folder) == []
    visits = Counter(client for record in ended.history[-10:] for client in record.clients)
    client = next(client for client, number in visits.items() if number == 1)
    store = DiskStore(folder / "state", types=state_types(experiment.algorithm), identity=None)
    store.stage(store.round_of(client), client, before[client])  # of its last visit but one
    store.close()
    (problem,) = _problems(folder)
    assert "is the mean of the clients' up to" in problem


@pytest.mark.slow
def test_bfloat16_states_are_not_held_to_an_exact_invariant(tmp_path: Path) -> None:
    folder = run(_experiment(state={"float_type": "bfloat16"}), out=tmp_path).folder.path
    assert _problems(folder) == []
    facts = {finding.name: finding.text for finding in findings(folder)}
    assert "as far as bfloat16 goes" in facts["invariant"]


@pytest.mark.slow
def test_an_algorithm_without_a_promise_has_no_invariant(tmp_path: Path) -> None:
    folder = run(_experiment("fedavg"), out=tmp_path).folder.path
    assert _problems(folder) == []
    assert "invariant" not in {finding.name for finding in findings(folder)}


@pytest.mark.parametrize("weights", [None, (1, 4, 2, 7, 3)])
@pytest.mark.parametrize("name", METHODS)
def test_promised_invariants_hold_in_every_world(name: str, weights: tuple[int, ...] | None) -> None:
    play = quadratic_world().play(METHODS[name], weights=weights)
    initial = play.theta
    play.rounds([[0, 1], [1, 3], [0, 2]])
    registered = sum(play.weights)
    invariant = invariant_of(play.algorithm, play.checkpoint.server, initial=initial, registered=registered)
    if invariant is not None:
        states = [(play.weights[client], state) for client, state in play.states.items()]
        assert imbalance(invariant, states, registered=registered) < 1e-12
        assert imbalance(invariant, states[1:], registered=registered) > 1e-3


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (problem,) = _problems(tmp_path)
    assert "is not a run folder: it has no experiment.toml" in problem


def test_a_file_is_no_run_folder_to_anyone_who_opens_one() -> None:
    path, sentence = Path(__file__), "py is not a run folder: it is a file; `fedadmm run` makes one"
    assert [sentence in problem for problem in _problems(path)] == [True]
    for open_run in (read_run, certify_run, lambda path: export_command([path])):
        with pytest.raises(InputError, match=re.escape(sentence)):
            open_run(path)


@pytest.mark.slow
def test_export_writes_the_model_and_a_clients_state(sound: Path, tmp_path: Path) -> None:
    assert _fedadmm("export", sound, "--out", tmp_path / "m.safetensors", log=tmp_path / "log")[0] == 0
    model = load_file(tmp_path / "m.safetensors")
    expected = load_file(sound / "model.safetensors")
    assert model.keys() == expected.keys()
    assert all(torch.equal(model[name], expected[name]) for name in model)
    client = json.loads((sound / "rounds.jsonl").read_text().splitlines()[-1])["clients"][0]
    out = tmp_path / "c.safetensors"
    code, said = _fedadmm("export", sound, "--client", client, "--out", out, log=tmp_path / "log")
    assert code == 0, said
    state = load_file(out)
    store = DiskStore(sound / "state", types=state_types(_experiment().algorithm), identity=None)
    w, y, rho = store.get(client)
    store.close()
    assert torch.equal(state["w"], w)
    assert torch.equal(state["y"], y)
    assert float(state["rho"]) == pytest.approx(rho)
    assert state["w.1.weight"].shape == model["1.weight"].shape
    assert torch.equal(torch.cat([state["w.1.weight"].reshape(-1), state["w.1.bias"]]), w)


@pytest.mark.slow
def test_export_makes_a_model_that_lags_from_the_store(folder: Path, tmp_path: Path) -> None:
    expected = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    assert _fedadmm("export", folder, "--out", tmp_path / "m.safetensors", log=tmp_path / "log")[0] == 0
    model = load_file(tmp_path / "m.safetensors")
    assert all(torch.equal(model[name], expected[name]) for name in expected)


@pytest.mark.slow
def test_export_of_a_client_without_state_is_refused(sound: Path, tmp_path: Path) -> None:
    code, said = _fedadmm("export", sound, "--client", 999, log=tmp_path / "log")
    assert code == 2
    assert "client 999 has no state" in said


@pytest.mark.slow
def test_a_run_in_memory_has_nothing_to_check_but_its_rounds(tmp_path: Path) -> None:
    folder = run(_experiment(state={"store": "memory"}), out=tmp_path).folder.path
    assert _problems(folder) == []
    assert "kept in memory" in str(list(findings(folder)))


@pytest.mark.slow
def test_a_folder_in_use_is_not_read(sound: Path) -> None:
    with RunFolder(sound).lock():
        (problem,) = _problems(sound)
    assert "is in use by another process" in problem


@pytest.mark.slow
def test_of_several_folders_each_has_a_line_and_one_that_is_damaged_makes_the_exit_code_2(
    sound: Path, tmp_path: Path
) -> None:
    for name in ("a", "tuning/b", "c"):
        shutil.copytree(sound, tmp_path / "runs" / name)
    (tmp_path / "runs" / "report.html").write_text("beside the runs")
    well = _fedadmm("check", *sorted((tmp_path / "runs").iterdir()), log=tmp_path / "log")
    lines = [f"{tmp_path}/runs/{name}: all is well (6 of 6 rounds)" for name in ("a", "c", "tuning/b")]
    assert well == (0, " ".join(lines))
    (tmp_path / "runs" / "c" / "rounds.jsonl").write_text("{}\n")
    code, said = _fedadmm("check", *sorted((tmp_path / "runs").iterdir()), log=tmp_path / "log")
    assert code == 2
    assert said.startswith(f"{lines[0]} {tmp_path}/runs/c: rounds.jsonl is not that of the store; ")
    assert lines[2] in said
    assert "1 of 3 folders are damaged, or no run folders; restore those named above" in said
