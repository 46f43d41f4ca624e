"""A run folder that was damaged or tampered with is refused in a sentence that blames the right file."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fuzz
from fedadmm import Experiment, InputError
from fedadmm.cli.export import export_command
from fedadmm.engine import workers
from fedadmm.report.runs import read_run
from fedadmm.runs.check import findings
from fedadmm.runs.export import export, read_model
from fedadmm.runs.records import RunFolder
from fedadmm.runs.runner import run
from fedadmm.state import file as state_file


def _experiment(**changes: object) -> Experiment:
    model, data = {"name": "softmax_regression"}, {"name": "digits", "num_clients": 10}
    options = {"name": "small", "rounds": 2, "participation": 0.3, "engine": "serial", "model": model, "data": data}
    return Experiment(**options | {"algorithm": {"name": "feddyn"}} | changes)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(_experiment(), out=tmp_path_factory.mktemp("runs")).folder.path


def _problems(folder: Path) -> list[str]:
    return [finding.text for finding in findings(folder) if finding.kind == "problem"]


def test_a_bad_experiment_is_not_blamed_on_the_store(folder: Path) -> None:
    file, draw = folder / "experiment.toml", random.Random(0)
    sound = file.read_bytes()
    texts = ["[" * 3000, "rounds = " + "9" * 5000, "self = 1", "[algorithm]\nname = [1]\n", "", "\x00"]
    for text in [*texts, *(fuzz.mutant(draw.choice(fuzz.bases()), draw) for _ in range(15))]:
        file.write_bytes(text.encode(errors="surrogatepass"))
        assert not any("damaged" in problem for problem in _problems(folder)), text
    file.write_bytes(sound)
    assert _problems(folder) == []


def test_an_experiment_that_was_made_to_name_code_does_not_run_it(folder: Path, tmp_path: Path) -> None:
    file, trace = folder / "experiment.toml", tmp_path / "trace"
    code = f'[data]\nname = "os:mkdir"\noptions = {{path = "{trace}"}}\n'
    file.write_text(file.read_text().replace('[data]\nname = "digits"\n', code))
    assert "os:mkdir" in file.read_text()
    read_run(folder)
    assert any("the state is not that of experiment.toml" in problem for problem in _problems(folder))
    export(folder, client=None, personal=False, data_dir=None)
    assert not trace.exists()


def test_export_refuses_the_model_that_check_knows_is_wrong(folder: Path) -> None:
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 64
    file.write_bytes(content)
    (problem,) = _problems(folder)
    assert problem.startswith("model.safetensors is not that of the store; run the same experiment again")
    with pytest.raises(InputError, match=r"model.safetensors is not that of the store; run the same experiment again"):
        export(folder, client=None, personal=False, data_dir=None)
    run(_experiment(), out=folder.parent)
    assert export(folder, client=None, personal=False, data_dir=None)[1] == 2


def test_a_damaged_header_of_a_model_is_a_sentence(folder: Path) -> None:
    file, draw = folder / "model.safetensors", random.Random(0)
    sound, told = file.read_bytes(), 0
    for _ in range(300):
        content = bytearray(sound)
        content[draw.randrange(200)] = draw.randrange(256)
        file.write_bytes(content)
        try:
            read_model(RunFolder(folder))
        except InputError as error:
            told += "is damaged" in str(error)
    assert told > 100


@pytest.mark.parametrize("out", ["missing/model.safetensors", "file/model.safetensors"])
def test_export_to_a_place_that_cannot_be_written_is_a_sentence(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*; give another --out"):
        export_command([folder], out=Path(out))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["file", folder.name])


def test_a_lock_that_is_a_folder_is_a_sentence(folder: Path) -> None:
    (folder / "lock").unlink()
    (folder / "lock").mkdir()
    assert _problems(folder) == [f"cannot read {folder}/lock: Is a directory; make it a file that can be read"]
    with pytest.raises(InputError, match=r"cannot write .*: Is a directory"):
        run(_experiment(), out=folder.parent)


def test_a_run_mentions_a_damaged_state_that_it_does_not_need(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = folder / "state/data.mdb"
    content = data.read_bytes()
    state = export(folder, client=_first_client(folder), personal=False, data_dir=None)[0]["y"]
    place = content.index(state.numpy().tobytes())
    data.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    run(_experiment(), out=folder.parent)
    assert f"the state of client {_first_client(folder)} in {folder}/state is damaged" in caplog.text


def _first_client(folder: Path) -> int:
    return int(RunFolder(folder).read_records()[0]["clients"][0])


@pytest.mark.parametrize(
    "error", [RuntimeError("unable to allocate for file </torch_1_left>: No space left"), OSError(24, "Many")]
)
def test_workers_that_cannot_be_started_are_a_sentence_and_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    left = Path("/dev/shm/torch_1_left")

    def full(*_: Any, **__: Any) -> None:
        left.touch()
        raise error

    monkeypatch.setattr(workers, "Pool", full)
    with pytest.raises(InputError, match=r"cannot start 2 worker processes: .*; free /dev/shm, allow more open files"):
        run(_experiment(engine="workers", workers=2), out=tmp_path)
    assert not list(tmp_path.iterdir())
    assert left.exists() == isinstance(error, OSError)  # the other one names it
    left.unlink(missing_ok=True)


LIMITED = """
import resource, sys
from pathlib import Path
import torch
from fedadmm.state import file
resource.setrlimit(resource.RLIMIT_AS, (20 << 30, 20 << 30))
try:
    file.open_checked(Path(sys.argv[1]), about={}, remedy="", client_type=tuple)
    print("opened")
except file.InputError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_limit_on_the_address_space_is_kept_and_not_blamed_on_the_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "state")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == "opened\n"


def test_want_of_memory_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    error = state_file.unusable(tmp_path, state_file.lmdb.MemoryError("Cannot allocate memory"))
    assert "allow more memory or address space (ulimit -v)" in str(error)
    assert "disk" not in str(error)
