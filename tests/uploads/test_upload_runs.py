"""Runs with what becomes of uploads: two engines, lost messages, a resumed run, check, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedadmm
from fedadmm.algorithms import FastFedADMM, FedADMM, FedADMMAuto, FedAvg, FedPD
from fedadmm.config.experiment import Experiment
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.errors import InputError
from fedadmm.core.state_parts import HeldBack, without_part
from fedadmm.runs.check import findings
from fedadmm.runs.runner import run
from fedadmm.state.disk import DiskStore
from play import identical
from small_runs import outcome, simulation_of
from worlds import made, perceptron, some_data

TOP_K = {"name": "top_k", "keep": 0.2, "error_feedback": True}
METHOD = FedADMM(rho=0.5, eta="seen")
CASES: dict[str, dict[str, Any]] = {
    "held back": {"compression": TOP_K},
    "drawn, trimmed and lied to": {
        "compression": {"name": "random_k", "keep": 0.5},
        "robust": {"name": "geometric_median"},
        "attack": {"name": "lie", "share": 0.5, "factor": 1.0},
    },
    "clipped and noisy": {
        "robust": {"name": "norm_clip", "norm": 0.5},
        "attack": {"name": "noise", "share": 0.3},
        "compression": {"name": "int4"},
    },
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("on_disk", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_are_the_serial_engine_to_the_bit(case: str, on_disk: bool, tmp_path: Path) -> None:
    folder = tmp_path / "states" if on_disk else None
    serial = outcome(simulation_of(METHOD, engine="serial", **CASES[case]), rounds=3)
    workers = outcome(simulation_of(METHOD, engine="workers", workers=2, folder=folder, **CASES[case]), rounds=3)
    assert identical(serial, workers)


def test_a_run_with_lost_messages_that_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    options = {
        "faults": {"lose_replies": 0.3, "duplicate": 0.2, "delay": 0.2},
        "engine": "serial",
        **CASES["held back"],
    }
    whole = outcome(simulation_of(METHOD, **options), rounds=5)
    first = simulation_of(METHOD, folder=tmp_path / "states", **options)
    outcome(first, rounds=2)
    assert isinstance(first._store, DiskStore)
    first._store.close()
    again = simulation_of(METHOD, folder=tmp_path / "states", **options)
    assert identical(outcome(again, rounds=3), whole)


def test_what_is_held_back_is_dropped_with_an_update_that_was_lost() -> None:
    simulation = simulation_of(METHOD, engine="serial", faults={"lose_replies": 0.5}, **CASES["held back"])
    before: dict[int, Any] = {}
    for _ in range(4):
        record = simulation.advance()
        after = {client: simulation._store.get(client) for client in simulation._store}
        assert all(identical(after.get(client), before.get(client)) for client in record.lost)
        assert all(without_part(after[client], HeldBack)[1] is not None for client in record.clients)
        before = after
    assert any(record.lost for record in simulation.history)


def _facts(tmp_path: Path, **options: Any) -> tuple[str, list[str]]:
    experiment = Experiment(
        **{"rounds": 3, "participation": 0.3, "engine": "serial", "algorithm": FastFedADMM(), **options},
        model={"name": "softmax_regression"},
        data={"name": "digits", "num_clients": 10},
    )
    found = list(findings(run(experiment, out=tmp_path).folder.path))
    said = [finding.text for finding in found if finding.name == "invariant"]
    return (said or [""])[0], [finding.text for finding in found if finding.kind == "problem"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"compression": TOP_K}, "mu_sum is the mean of the clients' up to"),
        ({"robust": {"name": "norm_clip", "norm": 0.1}}, "mu_sum is the mean of the clients' up to"),
        ({"attack": {"name": "label_flip", "share": 0.5}}, "mu_sum is the mean of the clients' up to"),
        ({"robust": {"name": "median"}}, 'none of mu_sum: robust.name="median" applies something else than'),
        ({"compression": {"name": "int8"}}, "none of mu_sum: compression leaves something out of uploads that"),
        ({"attack": {"name": "scaling", "share": 0.5}}, "none of mu_sum: attackers send something else than they keep"),
    ],
)
def test_check_says_what_became_of_the_invariant(options: Any, sentence: str, tmp_path: Path) -> None:
    said, problems = _facts(tmp_path, **options)
    assert said.startswith(sentence)
    assert problems == []


def test_check_counts_what_is_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedadmm.core.optional.with_vectors", lambda upload, flat: upload)  # as if nothing were
    _, problems = _facts(tmp_path, compression=TOP_K)
    assert "mu_sum is the mean of the clients' up to" in problems[0]


class Signs:
    """A compressor of a user's: the sign of each coordinate, times their mean size."""

    def compress(self, vector: torch.Tensor, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        bits = np.packbits((vector > 0).numpy())
        return {"signs": torch.from_numpy(bits), "size": vector.abs().mean()[None]}

    def decompress(self, arrays: dict[str, torch.Tensor], size: int, generator: np.random.Generator) -> torch.Tensor:
        signs = np.unpackbits(arrays["signs"].numpy(), count=size)
        return arrays["size"] * (2.0 * torch.from_numpy(signs) - 1)


signs = Signs()


class Halves(Signs):
    """Another one: of half the size."""

    def decompress(self, arrays: dict[str, torch.Tensor], size: int, generator: np.random.Generator) -> torch.Tensor:
        return super().decompress(arrays, size, generator) / 2


def test_another_compressor_is_another_run(tmp_path: Path) -> None:
    def folder(compressor: Any) -> str:
        options: dict[str, Any] = {"participation": 1.0, "rounds": 1, "engine": "serial", "progress": False}
        options |= {"compression": {"name": compressor}, "out": tmp_path, "data": some_data([8] * 2)}
        result = fedadmm.simulate(FedAvg(), model=made(perceptron), **options)
        assert [finding.text for finding in findings(result.folder) if finding.kind == "problem"] == []
        return str(result.folder)

    other = type("Signs", (Halves,), {"__module__": Signs.__module__, "__qualname__": "Signs"})
    assert folder(Signs()) == folder(Signs()) != folder(other())


@pytest.mark.parametrize("name", [signs, "test_upload_runs:signs"], ids=["an object", "by its name"])
def test_a_compressor_of_the_users_is_two_functions(name: Any) -> None:
    table = {"name": name, "error_feedback": True}
    result = fedadmm.simulate(
        FedAvg(), model=made(perceptron), data=some_data([20] * 4), rounds=2, participation=1.0, compression=table,
        engine="serial", progress=False,
    )  # fmt: skip
    size = sum(parameter.numel() for parameter in made(perceptron).parameters())
    assert [record.bytes_up for record in result.history] == [4 * (-(-size // 8) + 4)] * 2


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        (FedPD(), {"compression": TOP_K}, "FedPD's clients go on alone between communications, and error_feedback"),
        (FedPD(), {"robust": {"name": "norm_clip", "norm": 1.0}}, "FedPD uploads models and not changes, which a norm"),
        (METHOD, {"robust": {"name": "median"}, "weighting": "examples"}, '"median" counts every client alike'),
        (METHOD, {"robust": {"name": "krum", "liars": 2}}, "liars=2 needs 7 uploads in a round, and 6 clients"),
        (FedADMMAuto(), {"robust": {"name": "norm_clip", "norm": 1.0}}, "no state fits an upload that was shortened"),
        (METHOD, {"compression": {"name": "int8"}, "engine": "stacked"}, 'engine="stacked" averages uploads'),
        (METHOD, {"compression": {"name": "int9"}}, "name='int9' is unknown; did you mean int8"),
        (METHOD, {"compression": {"name": "top_k"}}, 'name="top_k" needs keep; set keep = 0.1'),
        (METHOD, {"compression": {"name": "int8", "keep": 0.1}}, "keep=0.1 is for top_k and random_k; leave it out"),
        (METHOD, {"compression": {"name": "math:pi"}}, "compressor 'builtins:float' has no compress and no decompress"),
        (METHOD, {"compression": {"name": METHOD}}, "has no compress and no decompress; a compressor is these two"),
        (METHOD, {"robust": {"name": "trimmed_mean", "trim": 0.5}}, "trim=0.5 is out of range; use a number from 0"),
        (METHOD, {"attack": {"name": "lie", "share": 1.5}}, "share=1.5 is out of range"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(method: Algorithm, options: Any, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        simulation_of(method, **{"weighting": "equal", "engine": "serial", **options})
    assert sentence in str(refused.value)


def test_auto_picks_workers_where_something_becomes_of_uploads() -> None:
    simulation = simulation_of(METHOD, engine="auto", compression={"name": "int8"})
    simulation.close()
    assert str(simulation.engine) == "workers: what becomes of uploads is worked out client by client"


def test_labels_cannot_be_flipped_where_there_are_none() -> None:
    experiment = Experiment(
        data={"name": "quadratic", "num_clients": 4, "partition": "natural", "options": {"dimension": 3}},
        model={"name": "linear", "loss": "least_squares"},
        attack={"name": "label_flip", "share": 0.5},
        participation=1.0,
    )
    with pytest.raises(InputError, match="label_flip exchanges classes, and these targets are numbers"):
        fedadmm.runs.assembly.federation_of(experiment)
