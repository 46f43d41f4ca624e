"""A client's own model: FedADMM keeps one, others do not; it is evaluated and exported beside theta."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from fedadmm import Experiment, FedADMM, FedAvg, InputError, load
from fedadmm.cli.export import export_command
from fedadmm.runs.export import normalisation_of
from fedadmm.runs.runner import Run, run
from small_runs import simulation_of

ROUNDS = 2


def test_who_took_part_is_judged_by_its_own_model_and_the_others_by_theta() -> None:
    simulation = simulation_of(FedADMM(rho=0.5), engine="serial", participation=0.5)
    simulation.advance()
    active = simulation.history[0].clients
    own, theta = (simulation.evaluate_clients("loss", model=model).values for model in ("own", "theta"))
    assert set(np.flatnonzero(own != theta)) == set(active)
    state = simulation._store.get(active[0])
    assert simulation.personal_model(active[0]) is state.w


def test_a_method_without_own_models_has_theta_for_all() -> None:
    simulation = simulation_of(FedAvg(), engine="serial")
    simulation.advance()
    own, theta = (simulation.evaluate_clients("loss", model=model).values for model in ("own", "theta"))
    assert own.tolist() == theta.tolist()


def test_an_unknown_kind_of_model_is_refused() -> None:
    simulation = simulation_of(FedAvg(), engine="serial")
    with pytest.raises(InputError, match="model='mine' is unknown"):
        simulation.evaluate_clients(model="mine")


def ended_run(folder: Path, **changes: object) -> Run:
    table = {"data": {"num_clients": 20}, "model": {"name": "softmax_regression"}, "engine": "serial"}
    return run(Experiment(rounds=ROUNDS, **table, **changes), out=folder)


def test_export_writes_a_clients_own_model_under_the_models_names(tmp_path: Path) -> None:
    ended = ended_run(tmp_path, algorithm=FedADMM())
    client = ended.history[-1].clients[0]
    export_command([ended.folder.path], out=tmp_path / "theta", client=None)
    export_command([ended.folder.path], out=tmp_path / "state", client=client)
    export_command([ended.folder.path], out=tmp_path / "own", client=client, personal_model=True)
    theta, state, own = (load_file(tmp_path / name) for name in ("theta", "state", "own"))
    assert own.keys() == theta.keys()
    assert own["1.weight"].equal(state["w.1.weight"])
    assert not own["1.weight"].equal(theta["1.weight"])


def test_a_models_file_says_how_its_inputs_were_normalised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = ended_run(tmp_path, algorithm=FedADMM())
    export_command([ended.folder.path], out=tmp_path / "model")
    assert "pixels from 0 to 1, less [0.3057" in capsys.readouterr().out
    raw, normalised = (load("digits", normalisation=name).test for name in ("none", None))
    assert raw is not None
    assert normalised is not None
    for file in (ended.folder.model, tmp_path / "model"):
        with safe_open(file, framework="pt") as opened:
            found = json.loads(opened.metadata()["fedadmm"])["normalisation"]
        mean, std = (torch.tensor(found[key]).view(-1, 1, 1) for key in ("mean", "std"))
        assert torch.equal((raw.inputs - mean) / std, normalised.inputs)
    assert normalisation_of(ended.experiment.data.replace(normalisation="none")) == {}
    assert normalisation_of(ended.experiment.data.replace(name="own:data")) == {}


def test_export_says_why_there_is_no_own_model(tmp_path: Path) -> None:
    ended = ended_run(tmp_path, algorithm={"name": "fedavg"})
    client = ended.history[-1].clients[0]
    with pytest.raises(InputError, match="FedAvg keeps no model of a client's own"):
        export_command([ended.folder.path], client=client, personal_model=True)
    with pytest.raises(InputError, match="give --client as well"):
        export_command([ended.folder.path], client=None, personal_model=True)


def test_the_old_option_is_refused_with_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--own-model is called --personal-model now"):
        export_command([tmp_path], client=1, own_model=True)
