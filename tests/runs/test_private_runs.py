"""A private run in the simulator: who takes part, what is released, what it costs, when it ends, what is refused."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import fedadmm
from fedadmm.api.running import run
from fedadmm.cli.show import show_command
from fedadmm.config.plans import load_plan
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.errors import InputError
from fedadmm.core.participation import Poisson
from fedadmm.core.seeds import stream
from fedadmm.runs.check import findings
from fedadmm.state.memory import MemoryStore
from fedadmm.uploads.accountant import Accountant, noise_for, split_noise
from play import identical
from small_runs import SIZES, outcome, simulation_of
from worlds import made, network, perceptron, some_data

PRIVACY = {"clip": 0.2, "noise": 1.0, "delta": 1e-2}


def _private(method: Algorithm, *, privacy: dict[str, Any] | None = None, **options: Any) -> fedadmm.Simulation:
    usual = {"model": made(perceptron), "weighting": "equal", "engine": "serial", "participation": 0.5}
    return simulation_of(method, privacy=PRIVACY | (privacy or {}), **usual | options)


class Counted(NamedTuple):
    step: torch.Tensor
    count: torch.Tensor


class Counting(fedadmm.FedAvg):
    """A method that uploads whole numbers beside its change."""

    def client_update(self, server: Any, client: Any, problem: Any) -> tuple[Any, Any]:
        return Counted(problem.solve(start=server.theta).w - server.theta, torch.tensor([0, 1, 0])), client


METHODS = [fedadmm.FedADMM(), fedadmm.Scaffold(), fedadmm.FastFedADMM(rho=0.1)]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_workers_and_a_stop_in_the_middle_give_the_bytes_of_one_process(method: Algorithm) -> None:
    privacy = {"adaptive": {}}
    whole = outcome(_private(method, privacy=privacy), rounds=4)
    assert identical(outcome(_private(method, privacy=privacy, engine="workers", workers=2), rounds=4), whole)
    store = MemoryStore()
    outcome(_private(method, privacy=privacy, open_store=lambda *_: store), rounds=2)
    resumed = _private(method, privacy=privacy, open_store=lambda *_: store)
    assert identical(outcome(resumed, rounds=2), whole)


def test_a_round_has_the_clients_whose_coins_fell_so_and_its_mean_is_over_those_expected() -> None:
    simulation = _private(fedadmm.FedAvg(), privacy={"noise": 0.0, "clip": math.inf})
    sizes = [len(simulation.assignments(round)) for round in range(1, 400)]
    # Half of eight clients, each by a coin of its own: the number varies with a variance of 8 x 1/4.
    assert np.mean(sizes) == pytest.approx(4, abs=4 * math.sqrt(2 / 400))
    assert np.var(sizes) == pytest.approx(2, rel=0.3)
    assert isinstance(simulation.federation.planner.participation, Poisson)
    # In a round of k clients the step is k/4 times that of the plain mean.
    before = simulation.theta.clone()
    clients = simulation.advance().clients
    plain = simulation_of(
        fedadmm.FedAvg(), model=made(perceptron), weighting="equal", engine="serial",
        participation=lambda *_: list(clients),
    )  # fmt: skip
    plain.advance()
    assert torch.allclose(simulation.theta - before, len(clients) / 4 * (plain.theta - before), atol=1e-6)


def test_a_fixed_cohort_is_the_plain_run_but_for_noise_and_clip() -> None:
    private = _private(fedadmm.FedADMM(), privacy={"noise": 0.0, "clip": math.inf, "sampling": "fixed"})
    plain = simulation_of(
        fedadmm.FedADMM(), model=made(perceptron), weighting="equal", engine="serial", participation=0.5
    )
    outcome(private, rounds=3)
    outcome(plain, rounds=3)
    assert torch.equal(private.theta, plain.theta)
    assert [record.clients for record in private.history] == [record.clients for record in plain.history]


@pytest.mark.slow
def test_a_record_has_what_was_spent_and_nothing_that_the_noise_does_not_cover() -> None:
    simulation = _private(fedadmm.FedAvg(), local=fedadmm.LocalTraining(tolerance=0.5, max_steps=3))
    outcome(simulation, rounds=3)
    accountant = Accountant(1.0, share=0.5, delta=1e-2)
    for record in simulation.history:
        assert record.metrics["epsilon_spent"] == accountant.epsilon(record.round)
        assert (record.client_loss, record.upload_norm) == (None, None)
        assert set(record.metrics) == {"epsilon_spent"}  # nothing of what the clients achieved


def test_a_run_ends_before_the_round_that_would_cost_too_much() -> None:
    # Noise 1 and half of the clients: four rounds cost less than epsilon 4.5 at delta 1e-2, and five cost more.
    accountant = Accountant(1.0, share=0.5, delta=1e-2)
    budget = (accountant.epsilon(4) + accountant.epsilon(5)) / 2
    result = _simulated(privacy=PRIVACY | {"epsilon": budget}, rounds=20)
    assert (len(result.history), result.status) == (4, "finished")
    assert [record.budget_spent for record in result.history] == [False, False, False, True]
    assert len(result.continue_for(5).history) == 4
    with pytest.raises(InputError, match="spent before the first round"):
        _simulated(privacy=PRIVACY | {"epsilon": 0.1}, rounds=20)


@pytest.mark.slow
def test_noise_is_found_so_that_all_rounds_cost_epsilon_and_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="fedadmm")
    result = _simulated(privacy={"clip": 0.2, "epsilon": 4, "delta": 1e-2}, rounds=6, out=tmp_path)
    assert result.folder is not None
    noise = noise_for(4, rounds=6, share=0.5, delta=1e-2, sampling="poisson")
    sentence = f"privacy.noise is {noise:.4g}: so 6 rounds cost privacy.epsilon=4"
    assert sentence in caplog.text  # which `fedadmm run` prints
    show_command([result.folder])
    assert sentence in capsys.readouterr().out
    assert 0.99 * 4 < result.history[-1].metrics["epsilon_spent"] <= 4
    assert (len(result.history), result.history[-1].budget_spent) == (6, True)
    assert result.experiment.privacy is not None
    assert result.experiment.privacy.rounds == 6  # so that more rounds would be another experiment


def _simulated(*, rounds: int, **options: Any) -> fedadmm.Result:
    return fedadmm.simulate(
        fedadmm.FedAvg(), model=made(perceptron), data=some_data(SIZES), rounds=rounds, participation=0.5,
        engine="serial", progress=False, **options,
    )  # fmt: skip


@pytest.mark.slow
def test_adaptive_clip_follows_the_median_norm_and_pays_for_it() -> None:
    private = _private(fedadmm.FedAvg(), privacy={"noise": 0.1, "clip": 1e-3, "adaptive": {"learning_rate": 1.0}})
    records = [private.advance() for _ in range(20)]
    clips, shares = ([record.metrics[key] for record in records] for key in ("clip", "within_clip"))
    assert clips[0] == 1e-3
    assert clips[1:] == pytest.approx(
        [clip * math.exp(0.5 - share) for clip, share in zip(clips, shares, strict=True)][:-1]
    )
    assert 0.05 < np.median(clips[-8:]) < 1.0  # from one thousandth on, to where half of the uploads are shorter
    sums = private.federation.transport.private
    # The count's noise is a 20th of the clients expected, 4; the sum's is larger than it would be alone.
    assert sums.count_noise == 0.2
    assert sums.sum_noise == split_noise(0.1, count_noise=0.2) > 0.1
    # What is released is the count of clients within clip, plus this noise; in round 1 nobody is.
    noise = float(stream(3, "privacy count", 1).standard_normal(1)[0])
    assert shares[0] == pytest.approx((-0.5 * len(records[0].clients) + 0.2 * noise) / 4 + 0.5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"weighting": "examples"}, "tells how many examples clients have"),
        ({"max_norm": "100x"}, "is measured on other clients"),
        ({"metric": "client_loss"}, "is of the clients' own data"),
        ({"clock": {"speed": 10, "asynchronous": {"buffer": 2}}}, "takes who comes first"),
        (
            {"clock": {"speed": 10, "deadline": 60, "availability": {"period": 9, "share": 0.5}}},
            "how long other clients took",
        ),
        ({"participation": [0.5] * 8}, "give participation as one share"),
        ({"model": made(network)}, "let clients keep theirs"),
        ({"engine": "stacked"}, 'use engine="workers"'),
        ({"compression": {"name": "int8"}}, "changes an upload after its norm was bounded"),
        ({"privacy": {"delta": 0.2}}, "is not below 1 / 8 clients"),
        ({"privacy": {"clip": math.inf}}, "bounds no upload"),
        ({"privacy": {"noise": None}}, "set noise, or epsilon"),
        ({"privacy": {"rounds": 5}}, "leave rounds or noise out"),
        ({"privacy": {"noise": None, "epsilon": 1.0}}, "privacy.rounds is missing"),
        ({"privacy": {"adaptive": {"count_noise": 0.4}}}, "uses up all of noise=1"),
    ],
)
def test_what_would_tell_more_or_promise_nothing_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        _private(fedadmm.FedAvg(), **options)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (fedadmm.FastFedADMM(), "set algorithm.rho to a number"),
        (fedadmm.Averaged(inner=fedadmm.FedExP()), "uploads numbers beside its vectors"),
        (fedadmm.FedExP(), r"uploads numbers beside its vectors \(squared\)"),
        (Counting(), r"uploads whole numbers \(count\), to which the noise of \[privacy\] cannot be added"),
        (fedadmm.FedPD(), "uploads models and not changes"),
        (fedadmm.FedADMMAuto(), "no state of a client fits"),
    ],
)
def test_methods_that_upload_more_than_changes_are_refused(method: Algorithm, told: str) -> None:
    with pytest.raises(InputError, match=told):
        _private(method)


def test_a_mean_of_all_clients_examples_is_refused_in_a_file() -> None:
    data = {"name": "hf:some/set", "num_clients": 8, "normalisation": "dataset"}
    with pytest.raises(InputError, match="by the mean of all clients' examples"):
        fedadmm.Experiment(data=data, privacy=PRIVACY)
    fedadmm.Experiment(data=data)
    fedadmm.Experiment(data=data | {"normalisation": "none"}, privacy=PRIVACY)


def test_noise_alone_moves_the_clip_by_a_bounded_factor() -> None:
    private = _private(fedadmm.FedAvg(), privacy={"adaptive": {"count_noise": 4000.0}})
    clips = [private.advance().metrics["clip"] for _ in range(12)]
    steps = np.abs(np.diff(np.log(clips)))
    assert steps.max() == pytest.approx(0.2 * 1.5)  # the learning rate x (2 - the quantile)


def test_a_certificate_is_refused() -> None:
    with pytest.raises(InputError, match="made of the clients' gradients"):
        _private(fedadmm.FedADMM(), certificate={"every": 1})


def test_buffers_that_clients_keep_are_no_obstacle() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    data = some_data(SIZES)
    kept = _private(fedadmm.FedAvg(), model=module, personal=["1.*"], data=_with_held_out(data))
    assert kept.advance().round == 1


def _with_held_out(data: Any) -> Any:
    from dataclasses import replace

    return replace(data, held_out=data)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "told"), [(0.0, "rounding allows"), (1.0, "with the noise of privacy in it")])
def test_check_holds_states_against_the_server_as_far_as_noise_lets_it(noise: float, told: str, tmp_path: Any) -> None:
    changes = {"rounds": 3, "model.name": "softmax_regression", "algorithm.rho": 0.1, "local.epochs": 1}
    changes |= {"privacy.clip": 0.1, "privacy.delta": 1e-3, "privacy.noise": noise, "engine": "serial"}
    ended = run(load_plan("digits").experiment(changes=changes), out=tmp_path)
    found = list(findings(ended.folder))
    assert [finding for finding in found if finding.kind == "problem"] == []
    assert told in next(finding.text for finding in found if finding.name == "invariant")
