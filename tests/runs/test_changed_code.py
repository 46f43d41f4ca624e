"""A run folder remembers the user's code, and does not mix rounds of two versions of it in silence."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

import fedadmm
from commands import fedadmm as command
from fedadmm import FedAvg, InputError, LocalTraining, simulate
from fedadmm.runs.check import check_run
from fedadmm.runs.code import changes
from worlds import some_data

OWN = """
import torch
from helpers import scaled

def data():
    inputs = torch.arange(24.0).reshape(12, 2) / 24
    return (inputs, torch.arange(12) % 2), (inputs, torch.arange(12) % 2)

def model():
    return torch.nn.Linear(2, 2)

def score(outputs, targets):
    return scaled(outputs.sum())
"""
EXPERIMENT = """
rounds = 1
engine = "serial"
participation = 1.0
metric = "score"
direction = "higher"
data = {name = "own:data", num_clients = 2, partition = "iid"}
model = {name = "own:model", metrics = {score = "own:score"}}
local = {epochs = 1}
[algorithm]
name = "fedavg"
[variants.fedavg]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "helpers.py").write_text("def scaled(x):\n    return 1.0 * x\n")
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    return tmp_path


def change(file: Path, old: str, new: str) -> None:
    text, before = file.read_text(), file.stat().st_mtime
    assert old in text
    file.write_text(text.replace(old, new))
    os.utime(file, (before + 2, before + 2))  # Python tells by the second, and the size, that it must be compiled again


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_code_unless_that_is_accepted(place: Path) -> None:
    run = partial(command, "run", "mine.toml", cwd=place)
    assert run().returncode == 0
    (folder,) = (place / "runs").iterdir()
    change(place / "own.py", "def score", "# What does not count.\n\ndef score")
    assert run("--rounds", 2).returncode == 0
    change(place / "helpers.py", "1.0", "2.0")
    refused = run("--rounds", 3)
    assert refused.returncode == 2
    where = folder.relative_to(place)
    assert refused.stderr == (
        f"fedadmm: the rounds in {where} were made with other code or data: helpers:scaled changed since; put it back, "
        "give another --out, or go on with rounds of both by --accept-code\n"
    )
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == 2
    # What is finished is not shown as if the new code had made it.
    assert run("--rounds", 2).returncode == 2
    told = command("check", folder, cwd=place)
    assert told.returncode == 0
    assert "helpers:scaled changed since the last round" in told.stdout
    assert run("--rounds", 3, "--accept-code").returncode == 0
    assert run("--rounds", 4).returncode == 0
    told = command("check", folder, cwd=place)
    assert "all as they were at the last round" in told.stdout
    assert re.search("^ rounds of different code +helpers:scaled changed before round 3 *$", told.stdout, re.MULTILINE)
    mark = f"{folder.name}: rounds of different code: helpers:scaled changed before round 3."
    assert mark in command("show", folder, cwd=place).stdout
    assert command("report", "runs", cwd=place).returncode == 0
    assert all(mark in (place / "report" / name).read_text() for name in ("tables.md", "report.html"))
    assert mark in repr(fedadmm.Comparison([fedadmm.open_run(folder)]))
    change(place / "own.py", "Linear(2, 2)", "Linear(2, 2, bias=False)")
    refused = run("--rounds", 5, "--accept-code")
    assert refused.returncode == 2
    assert "has 6 parameters, and yours has 4 now; put it back, or give another --out" in refused.stderr
    assert command("show", folder, cwd=place).returncode == 0


@pytest.mark.slow
def test_code_that_no_round_was_made_with_is_not_remembered(place: Path) -> None:
    run = partial(command, "run", "mine.toml", cwd=place)
    assert run().returncode == 0
    change(place / "helpers.py", "1.0", "2.0")
    assert "All 1 rounds are there already" in run("--accept-code").stdout
    assert run("--rounds", 2).returncode == 2
    change(place / "helpers.py", "2.0", "1.0")
    assert run("--rounds", 2).returncode == 0
    (folder,) = (place / "runs").iterdir()
    assert "rounds of different code" not in check_run(folder, data_dir=None).facts


def test_what_is_new_or_no_longer_used_has_not_changed() -> None:
    before = {"own:score": "1", "own:same": "1", "helpers:scaled": "1", "torch": "2.0"}
    now = {"own:score": "2", "own:same": "1", "helpers:doubled": "1", "torch": "2.1"}
    told = "own:score, torch (2.0 before) changed since (new: helpers:doubled; no longer used: helpers:scaled)"
    assert changes(before, now).told("since") == told
    assert changes(before, before | {"own:half": "3"}).told("since") == "what it uses changed since (new: own:half)"
    assert not changes(before, before)


@pytest.mark.slow
def test_compare_and_tune_do_not_show_runs_of_other_code(place: Path) -> None:
    tune = ("tune", "mine.toml", "--search", "local.learning_rate=0.1,0.2", "--rounds", 2)
    assert [command(*line, cwd=place).returncode for line in (("compare", "mine.toml"), tune)] == [0, 0]
    change(place / "own.py", "Linear(2, 2)", "Linear(2, 2, bias=False)")
    for line in (("compare", "mine.toml"), tune):
        refused = command(*line, cwd=place)
        assert refused.returncode == 2, refused.stdout
        assert "own:model, the initial model changed since" in refused.stderr


@pytest.mark.slow
def test_a_folder_without_a_digest_is_said_and_adopted(place: Path) -> None:
    assert command("run", "mine.toml", cwd=place).returncode == 0
    (folder,) = (place / "runs").iterdir()
    forgotten = "import sys; from fedadmm.state.file import StateFile; from pathlib import Path\n"
    forgotten += "with StateFile(Path(sys.argv[1]), tuple).writing() as tables: tables.delete('meta', b'note on code')"
    subprocess.run([sys.executable, "-c", forgotten, folder / "state"], check=True)
    change(place / "helpers.py", "1.0", "2.0")
    ended = command("run", "mine.toml", "--rounds", 2, cwd=place)
    assert ended.returncode == 0
    said = " ".join(ended.stderr.split())
    assert "does not say with which code of yours its rounds were made; from round 2 on it does" in said
    again = command("run", "mine.toml", "--rounds", 3, cwd=place)
    assert again.returncode == 0
    assert "does not say" not in again.stderr
    change(place / "helpers.py", "2.0", "1.0")
    assert command("run", "mine.toml", "--rounds", 4, cwd=place).returncode == 2


ASK = """
import sys, fedadmm
result = fedadmm.run("mine.toml", progress=False) if sys.argv[1:] == ["run"] else fedadmm.open_run(sys.argv[1])
print(len(result.history))
for ask in (result.model, result.evaluate, lambda: result.continue_for(1, progress=False)):
    try:
        ask()
    except fedadmm.InputError as error:
        print(error)
result = fedadmm.open_run(result.folder)
print(len(result.continue_for(1, progress=False, accept_code=True).history))
"""


@pytest.mark.slow
def test_what_is_opened_from_python_is_not_looked_at_with_other_code(place: Path) -> None:
    (place / "ask.py").write_text(ASK)
    run = partial(subprocess.run, cwd=place, capture_output=True, text=True, check=True)
    first = run([sys.executable, "ask.py", "run"]).stdout.splitlines()
    assert first[0] == "1"
    assert "changed" not in "".join(first)
    (folder,) = (place / "runs").iterdir()
    before = len((folder / "rounds.jsonl").read_text().splitlines())
    change(place / "helpers.py", "1.0", "2.0")
    lines = run([sys.executable, "ask.py", folder]).stdout.splitlines()
    assert lines[0] == str(before)
    assert ["helpers:scaled changed since" in line for line in lines[1:4]] == [True] * 3
    assert lines[4:] == [str(before + 1)]


MODEL = nn.Linear(4, 3)


class Quantile:
    """A metric with a setting, and with a state that does not count: what it has seen."""

    def __init__(self, q: float) -> None:
        self.q, self.seen = q, torch.zeros(1)

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + len(targets)
        return torch.quantile(outputs, self.q)


@pytest.mark.parametrize(
    ("key", "one", "two"),
    [
        ("loss", *(partial(functional.cross_entropy, label_smoothing=amount) for amount in (0.1, 0.2))),
        ("loss", *(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, amount])) for amount in (1.0, 2.0))),
        ("model", *(nn.Sequential(nn.Linear(4, 3), nn.Dropout(amount)) for amount in (0.1, 0.2))),
        ("metrics", *({"mine": Quantile(amount)} for amount in (0.5, 0.4))),
    ],
    ids=["partial", "weights of classes", "dropout", "metric"],
)
def test_an_object_from_python_with_other_settings_does_not_go_on_with_a_run(
    key: str, one: Any, two: Any, tmp_path: Path
) -> None:
    if key == "model":
        two[0].load_state_dict(one[0].state_dict())

    def play(value: Any, rounds: int = 1, **more: Any) -> fedadmm.Result:
        usual: dict[str, Any] = {"model": MODEL, "loss": functional.cross_entropy, key: value}
        data, local = some_data([6, 6]), LocalTraining(epochs=1)
        about: dict[str, Any] = {"engine": "serial", "participation": 1.0, "progress": False, "out": tmp_path}
        return simulate(FedAvg(), data=data, rounds=rounds, local=local, **about, **usual, **more)

    play(one)
    assert play(one, rounds=2).rounds_before == 1
    with pytest.raises(InputError, match=rf"were made with other code or data: {key}(\.mine)? changed since"):
        play(two, rounds=3)
    assert play(two, rounds=3, accept_code=True).rounds_before == 2


def test_a_file_that_the_user_s_data_is_read_from_counts_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "read_data.py").write_text(
        "import numpy\n\ndef data():\n    values = numpy.loadtxt('values.csv')\n"
        "    return (values[:, None], (values > 0).astype(int)), None\n"
    )
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    changes = {"data.name": "read_data:data", "model.name": "softmax_regression", "model.metrics": {}}
    plan = fedadmm.load_experiment("mine.toml", changes={**changes, "direction": None, "metric": "client_loss"})
    (place / "values.csv").write_text("1\n-1\n2\n-2\n")
    fedadmm.run(plan, progress=False)
    assert fedadmm.run(plan, progress=False).rounds_before == 1
    (place / "values.csv").write_text("1\n-1\n2\n-3\n")
    with pytest.raises(InputError, match="with other code or data: the examples changed since; put it back"):
        fedadmm.run(plan, progress=False)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data.partition": "read_split:split"}, "the examples changed since"),
        ({"model.name": "read_split:model", "model.metrics": {}}, "the initial model changed since"),
        ({"devices": "read_split:devices"}, "the facts of the devices changed since"),
    ],
    ids=["partition", "model", "devices"],
)
def test_what_functions_read_from_files_counts_too(
    changes: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "read_split.py").write_text(
        "from pathlib import Path\nimport numpy as np\nimport torch\n\n"
        "def number():\n    return int((Path(__file__).parent / 'number.txt').read_text())\n\n"
        "def split(labels, num_clients, generator):\n"
        "    return np.array_split(np.roll(np.arange(len(labels)), number()), num_clients)\n\n"
        "def model(input_shape, num_classes):\n"
        "    made = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
        "    made[1].bias.data.fill_(number())\n    return made\n\n"
        "def devices():\n    return {'energy': [number()] * 10}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "read_split", raising=False)
    usual = {"rounds": 1, "data.num_clients": 10, "model.name": "softmax_regression", "engine": "serial"}
    plan = fedadmm.load_experiment("digits", changes=usual | changes)
    (tmp_path / "number.txt").write_text("1")
    fedadmm.run(plan, out=tmp_path / "runs", progress=False)
    assert fedadmm.run(plan, out=tmp_path / "runs", progress=False).rounds_before == 1
    (tmp_path / "number.txt").write_text("2")
    with pytest.raises(InputError, match=told):
        fedadmm.run(plan, out=tmp_path / "runs", progress=False)


class Hidden(Dataset[Any]):
    """Forty examples that are read one by one; one of them differs, and no public attribute tells it."""

    def __init__(self, other: float) -> None:
        self._other = other

    def __len__(self) -> int:
        return 40

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.full((4,), self._other if row == 1 else float(row)), row % 3


def test_a_lazy_dataset_is_told_from_another_by_more_than_names_its_folder(tmp_path: Path) -> None:
    def play(other: float) -> fedadmm.Result:
        dataset = fedadmm.make_dataset(Hidden(other), lazy=True)
        data = fedadmm.federate(dataset, num_clients=2, partition="iid", seed=0)
        about: dict[str, Any] = {"engine": "serial", "participation": 1.0, "progress": False, "out": tmp_path}
        return simulate(FedAvg(), model=MODEL, data=data, rounds=1, **about)

    assert play(0.0).folder == play(0.0).folder
    with pytest.raises(InputError, match="other code or data: the examples changed since"):
        play(7.0)


def test_a_run_without_code_of_the_user_s_remembers_none(tmp_path: Path) -> None:
    changes = {"rounds": 1, "data.num_clients": 10, "engine": "serial"}
    result = fedadmm.run(fedadmm.load_experiment("digits", changes=changes), out=tmp_path, progress=False)
    assert "your code" not in check_run(result.folder).facts
