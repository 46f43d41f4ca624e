"""`fedadmm certify`: the conditions of Theorem 1, its bound, and what it says nothing of."""

import json
from pathlib import Path
from typing import Any

import pytest

from certified_runs import CERTIFIABLE, experiment
from commands import fedadmm
from fedadmm import FedADMM, FedAvg, InputError
from fedadmm.algorithms import RandomisedServer
from fedadmm.cli.certify import certify_command
from fedadmm.runs.runner import run
from fedadmm.studies.certify import certify_run


@pytest.mark.slow
def test_a_run_that_went_on_without_certificates_is_certified_as_far_as_they_go(tmp_path: Path) -> None:
    run(experiment(rounds=4), out=tmp_path)
    facts, _ = certify_run(run(experiment(certificate=None), out=tmp_path).folder.path)
    assert facts["certified"].startswith("4 rounds, with settings that experiment.toml no longer has;")


@pytest.mark.slow
def test_certify_finds_the_mean_below_the_bound(tmp_path: Path) -> None:
    folder = run(experiment(rounds=20), out=tmp_path).folder.path
    facts, sentence = certify_run(folder)
    assert facts["L"] == "1 (exact: least squares, from the data)"
    assert facts["rho"] == "rho=4 is above (1 + sqrt 5) L = 3.236"
    assert facts["p_min"] == "0.6, the participation"
    # rho = 4, L = 1: c_1 = 0.6 (1 - 1/2), c_2 = 3 x 17 + 2 (1 + 2/16), c_3 = 3 + 1 + c_2 / c_1 x 20 / 8.
    assert facts["c_1, c_2, c_3"] == "0.3, 53.25, 447.8"
    assert "bound with the gradients at the start" in facts["from round 1"]
    assert sentence.startswith("The mean of V / m is 0.0")


@pytest.mark.slow
def test_certify_says_what_the_theorem_asks_for(tmp_path: Path) -> None:
    folder = run(experiment(algorithm=FedADMM(rho=0.5)), out=tmp_path).folder.path
    _, sentence = certify_run(folder)
    assert sentence.startswith(
        "Theorem 1 says nothing of this run: rho=0.5 is not above (1 + sqrt 5) L = 3.236; eta=1.0 is not |S|/m"
    )
    plain = run(experiment(certificate=None, seed=1), out=tmp_path).folder.path
    with pytest.raises(InputError, match=r"has no certificate of its first round; run it anew with --set"):
        certify_run(plain)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "name", "text"),
    [
        (
            {"clock": {"speed": 100.0, "asynchronous": {"buffer": 2}}},
            "asynchronous",
            "the run is asynchronous: its clients work on older thetas, and Theorem 1 says nothing of that",
        ),
        ({"faults": {"lose_replies": 0.2}}, "p_min", "so p_min is unknown"),
        ({"clock": {"speed": 100.0, "deadline": 1000.0, "late": "drop"}}, "p_min", "so p_min is unknown"),
    ],
)
def test_certify_claims_no_bound_where_others_than_those_drawn_are_applied(
    tmp_path: Path, changes: dict[str, Any], name: str, text: str
) -> None:
    facts, sentence = certify_run(run(experiment(rounds=20, **changes), out=tmp_path).folder.path)
    assert facts[name].endswith(text)
    assert sentence == f"Theorem 1 says nothing of this run: {facts[name]}."
    assert "c_1, c_2, c_3" not in facts


@pytest.mark.slow
def test_certify_names_a_method_that_the_theorem_is_not_about(tmp_path: Path) -> None:
    randomised = run(experiment(algorithm=RandomisedServer(inner=CERTIFIABLE)), out=tmp_path).folder.path
    facts, sentence = certify_run(randomised)
    assert "rho" not in facts
    assert sentence.startswith(
        "Theorem 1 says nothing of this run: the theorem is about FedADMM alone, and this is RandomisedServer"
    )
    averaged = run(experiment(algorithm=FedAvg(), certificate=None), out=tmp_path).folder.path
    with pytest.raises(InputError, match="is a run of FedAvg, and certificates are for FedADMM and its kin"):
        certify_run(averaged)


def test_one_certified_round_is_told_once(tmp_path: Path) -> None:
    facts, _ = certify_run(run(experiment(rounds=1), out=tmp_path).folder.path)
    assert facts["V / m"].count("as round 1 began") == 1
    assert facts["certified"] == "1 round; in 0 everyone had been seen before"


@pytest.mark.slow
def test_the_command_prints_the_verdict(tmp_path: Path) -> None:
    folder = run(experiment(rounds=12), out=tmp_path).folder.path
    ended = fedadmm("certify", folder, cwd=tmp_path)
    assert ended.returncode == 0
    assert "of the bound of Theorem 1" in ended.stdout
    assert json.loads((folder / "rounds.jsonl").read_text().splitlines()[0])["V_theta"] == 0.0


@pytest.mark.slow
def test_the_command_takes_several_runs_and_passes_over_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [run(experiment(seed=seed), out=tmp_path).folder.path for seed in (0, 1)]
    with pytest.raises(InputError, match=r"none is not a run folder: it does not exist; .*$"):
        certify_command([folders[0], tmp_path / "none", folders[1]])
    said = capsys.readouterr().out
    assert [f"{folder}:" in said.splitlines() for folder in folders] == [True, True]
    assert said.count("c_1, c_2, c_3") == 2


@pytest.mark.slow
def test_runs_without_certificates_are_left_out_where_others_have_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `fedadmm certify runs/quadratic-fedadmm-*` after a comparison, whose run has none."""
    certified = run(experiment(), out=tmp_path).folder.path
    plain = run(experiment(certificate=None, seed=1), out=tmp_path).folder.path
    certify_command([certified, plain])
    said = capsys.readouterr()
    assert said.out.count("c_1, c_2, c_3") == 1
    assert f"Left out: {plain} has no certificate of its first round" in said.err.replace("\n", "")
    with pytest.raises(InputError, match="has no certificate of its first round"):
        certify_command([plain])
