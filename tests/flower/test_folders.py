"""The folders of a deployed server and of its clients: checked, exported, copied while they are used, and restored."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from local_grid import LocalGrid, assert_books_agree, start
from safetensors.torch import load_file
from test_strategy import config_of, grid_of, server_of
from torch import nn
from typer.testing import CliRunner

from fedadmm.cli import app
from fedadmm.core.errors import InputError
from fedadmm.flower import FederationSettings, client_app, make_strategy, server_app
from fedadmm.flower.folders import back_up, export_folder, findings


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a federation has played two rounds."""
    folder = tmp_path_factory.mktemp("state")
    config = config_of(folder, fraction_evaluate=1.0)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=2)
    return folder


def problems(folder: Path) -> list[str]:
    return [finding.text for finding in findings(folder) if finding.kind == "problem"]


OWN = """
import fedadmm

class Shorter(fedadmm.FedAvg):
    def server_update(self, server, mean, turnout):
        return super().server_update(server, mean._replace(step=0.5 * mean.step), turnout)
"""


def test_a_server_does_not_go_on_with_another_code_of_an_own_algorithm_unless_that_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_shorter.py").write_text(OWN)
    config = config_of(tmp_path / "state", algorithm__name="own_shorter:Shorter", num_clients=2)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=1)
    with server_of(config) as strategy:
        assert strategy.checkpoint.round == 1
    (tmp_path / "own_shorter.py").write_text(OWN.replace("0.5", "0.250"))
    del sys.modules["own_shorter"]  # as in a server that is started again
    server = tmp_path / "state" / "digits" / "server"
    with pytest.raises(InputError) as refused, server_of(config):
        pass
    assert str(refused.value) == (
        f"the rounds in {server} were made with other code or data: own_shorter:Shorter changed since; put it back, "
        "give this federation a name or a state-dir of its own, or go on with rounds of both by accept-code = true"
    )
    with server_of(config | {"accept-code": True}) as strategy:
        assert strategy.checkpoint.round == 1
    with server_of(config):
        pass
    facts = {finding.name: finding.text for finding in findings(server)}
    assert facts["rounds of different code"] == "own_shorter:Shorter changed before round 2"


@pytest.mark.slow
def test_a_sound_federation_has_no_problems_and_says_what_it_holds(state_dir: Path) -> None:
    facts = {finding.name: finding.text for finding in findings(state_dir)}
    assert problems(state_dir) == []
    assert facts["digits/server: rounds"] == "2"
    assert facts["digits/server: model.safetensors"] == "in step, round 2"
    assert "has not spoken yet" in facts["digits/client-3: pending update"]
    assert facts["digits/client-3: own-model.safetensors"] == "after round 2"


@pytest.mark.parametrize("owner", ["server", "client-1"])
def test_a_flipped_bit_is_found_and_named(owner: str, state_dir: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(state_dir / "digits" / owner, tmp_path / owner)
    file = damaged / "state" / "data.mdb"
    content = bytearray(file.read_bytes())
    for place in range(len(content) // 2, len(content), 4096):  # of what is stored, much is on these pages
        content[place + 100] ^= 1
    file.write_bytes(content)
    (problem,) = problems(damaged)[:1]
    assert str(damaged) in problem
    assert "is damaged" in problem


def test_a_model_of_another_round_is_found(state_dir: Path, tmp_path: Path) -> None:
    server = shutil.copytree(state_dir / "digits" / "server", tmp_path / "server")
    shutil.copy(state_dir / "digits" / "client-1" / "own-model.safetensors", server / "model.safetensors")
    (problem,) = problems(server)
    assert problem.startswith("model.safetensors is not that of the store")


def test_a_servers_model_and_a_clients_state_are_exported(state_dir: Path, tmp_path: Path) -> None:
    federation = state_dir / "digits"
    said = CliRunner().invoke(app, ["export", str(federation / "server"), "--out", str(tmp_path / "model")])
    assert "after round 2" in said.stdout
    model = load_file(tmp_path / "model")
    assert model["1.weight"].equal(load_file(federation / "server" / "model.safetensors")["1.weight"])
    state, when = export_folder(federation / "client-1", client=1, personal=False)
    assert "confirmed by the server" in when
    own, _ = export_folder(federation / "client-1", client=None, personal=True)
    assert {"y", "y.1.weight"} <= state.keys()
    assert own["1.weight"].shape == model["1.weight"].shape == state["y.1.weight"].shape
    with pytest.raises(InputError, match="client 3's is STATE-DIR/NAME/client-3"):
        export_folder(federation / "server", client=3, personal=False)
    for options in ([], ["--personal-model"]):  # in two files
        CliRunner().invoke(app, ["export", str(federation / "client-1"), "--out", str(tmp_path), *options])
    assert load_file(tmp_path / "client-1-state.safetensors").keys() == state.keys()
    assert load_file(tmp_path / "client-1-personal-model.safetensors").keys() == own.keys()
    with pytest.raises(InputError, match=r"digits holds .*client-0, .*client-1.*; name one of them"):
        CliRunner().invoke(app, ["export", str(federation)], catch_exceptions=False)


@pytest.mark.slow
def test_a_copy_made_while_the_server_runs_is_restored_and_goes_on(tmp_path: Path) -> None:
    config = config_of(tmp_path / "state")
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=2)
        command = [sys.executable, "-m", "fedadmm", "federation", "backup", tmp_path / "state", tmp_path / "copy"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert said.returncode == 0, said.stderr
        start(strategy, grid_of(config), rounds=1)
    expected = strategy.checkpoint
    shutil.rmtree(tmp_path / "state")
    copied = back_up(tmp_path / "copy", tmp_path / "state")
    assert len(copied) == 5
    with server_of(config) as strategy:
        assert strategy.checkpoint.round == 2
        start(strategy, grid_of(config), rounds=1)
        assert strategy.checkpoint.server.theta.equal(expected.server.theta)
        assert_books_agree(strategy, config, lambda client: tmp_path / "state")


@pytest.mark.slow
def test_verify_names_who_is_out_of_step_and_plays_no_round(tmp_path: Path) -> None:
    from flower_fedadmm import task

    config = config_of(tmp_path)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=1)
        older = shutil.copytree(tmp_path / "digits" / "client-1", tmp_path / "older")
        start(strategy, grid_of(config), rounds=2)
    grid = grid_of(config_of(tmp_path, verify=True))
    grid.nodes.pop()
    server_app(model=task.model)(grid, grid.context(100))
    shutil.rmtree(tmp_path / "digits" / "client-1")
    shutil.copytree(older, tmp_path / "digits" / "client-1")
    with pytest.raises(InputError, match="of client 1, and the state here is of update"):
        server_app(model=task.model)(grid, grid.context(100))
    assert len((tmp_path / "digits" / "server" / "rounds.jsonl").read_text().splitlines()) == 3


def test_a_federation_of_0_1_0_is_sound_and_goes_on(tmp_path: Path) -> None:
    """Two rounds of FedADMM with two clients, as the code of 0.1.0 left them."""
    from flower_fedadmm.task import data

    with tarfile.open(Path(__file__).parent / "federation_of_0_1_0.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert problems(tmp_path) == []

    def model() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    config = config_of(tmp_path, num_clients=2)
    strategy = make_strategy(FederationSettings.from_run_config(config), model=model)
    start(strategy, LocalGrid(client_app(model=model, data=data), config), rounds=1)
    strategy.close()
    assert [record["clients"] for record in strategy._folder.folder.read_records()] == [[0, 1]] * 3


def test_mistakes_of_a_backup_are_sentences(state_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is there already"):
        back_up(state_dir, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no server's or client's folder in"):
        back_up(tmp_path / "empty", tmp_path / "copy")
