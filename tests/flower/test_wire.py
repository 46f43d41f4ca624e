"""wire = "model": what Flower makes of models can be made of ours, and no rounding is lost on the way."""

from pathlib import Path
from typing import Any

import pytest
import torch
from local_grid import Array, ArrayRecord, flowers, start, state_on_disk
from test_bad_nodes import Spoiling
from test_strategy import config_of, grid_of, server_of

from fedadmm.algorithms import FedADMM
from fedadmm.algorithms.fedadmm import Upload
from fedadmm.flower.wire import ModelWire, Payload
from fedadmm.training.flat import FlatModel


def model_config(folder: Path, **changes: Any) -> dict[str, Any]:
    return config_of(folder, wire="model", **changes)


@pytest.mark.slow
def test_theta_is_the_mean_of_what_the_clients_hold_less_what_they_owe(tmp_path: Path) -> None:
    # eta = "seen" keeps theta the mean of the u_i = w_i + y_i / rho; over this wire each u_i counts less what is owed.
    config = model_config(tmp_path)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=4)
        theta = strategy.checkpoint.server.theta
        states = [state_on_disk(strategy, client, tmp_path) for client in range(4)]
    total = sum((s.w + s.y / s.rho).double() for s in states) / 4
    assert (theta - total).abs().max() < 4 * 4 * torch.finfo(torch.float32).eps * total.abs().max()


def test_what_rounding_holds_back_is_sent_with_the_next_upload() -> None:
    # In float32 1 + 2^-25 is 1: nothing arrives, and 2^-25 is owed. Twice that is 2^-24 and ties to even, 1 again;
    # three times it is above half a unit (2^-23) and arrives as 2^-23, which leaves 3 x 2^-25 - 2^-23 = -2^-25 owed.
    model = FlatModel(torch.nn.Linear(1, 1, bias=False))
    wire = ModelWire(FedADMM(), model)
    theta, small, residual, arrived = torch.ones(1), torch.tensor([2.0**-25]), None, []
    for _ in range(3):
        arrays, residual = wire.pack_upload(Payload(Upload(small), torch.empty(0)), theta=theta, residual=residual)
        arrived.append(float(wire.unpack_upload(arrays, theta=theta, client=0, round=1).message.delta))
    assert arrived == [0.0, 0.0, 2.0**-23]
    assert float(residual) == -(2.0**-25)


@pytest.mark.slow
def test_flowers_mean_of_models_is_our_mean_to_rounding(tmp_path: Path) -> None:
    thetas = []
    for name, aggregator in (("ours", None), ("flowers", flowers.FedAvg())):
        config = model_config(tmp_path, name=name)
        with server_of(config, aggregator=aggregator) as strategy:
            start(strategy, grid_of(config), rounds=2)
            thetas.append(strategy.checkpoint.server.theta)
    torch.testing.assert_close(thetas[0], thetas[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "aggregator", [flowers.FedMedian(), flowers.Krum(num_malicious_nodes=1)], ids=["median", "krum"]
)
def test_medians_and_krum_bear_a_node_that_lies(aggregator: Any, tmp_path: Path) -> None:
    from flower_fedadmm.client_app import app

    def lie(reply: Any) -> None:
        arrays = reply.content.array_records["arrays"]
        reply.content["arrays"] = ArrayRecord({k: Array(1e3 + v.numpy()) for k, v in arrays.items()})

    config = model_config(tmp_path)
    with server_of(config, aggregator=aggregator) as strategy:
        start(strategy, Spoiling(app, config, spoil=lie), rounds=1)
        assert strategy._folder.records()[0].clients == (0, 1, 2, 3)
        assert strategy.checkpoint.server.theta.abs().max() < 10


def test_the_noise_of_differential_privacy_is_in_the_checkpoint_and_goes_out_to_clients(tmp_path: Path) -> None:
    config = model_config(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        private = flowers.DifferentialPrivacyServerSideFixedClipping(
            strategy, noise_multiplier=0.1, clipping_norm=0.5, num_sampled_clients=4
        )
        before = strategy.checkpoint.server.theta.clone()
        result = start(private, grid, rounds=1, initial_arrays=strategy.arrays)
        theta = strategy.checkpoint.server.theta
        released = strategy.wire.read_model(result.arrays).message
    assert theta.equal(released)
    # Noise of 0.1 x 0.5 / 4 = 0.0125 in each of the 7,510 coordinates; the clipped mean step is 0.5 at most.
    noise = (theta - before).std()
    assert 0.0125 * 0.9 < noise < 0.0125 * 1.3
    with server_of(config) as strategy:
        assert strategy.checkpoint.server.theta.equal(theta)


@pytest.mark.parametrize("aggregator", [None, flowers.FedAvg()], ids=["ours", "flowers"])
@pytest.mark.slow
def test_an_upload_is_read_against_the_theta_that_clients_were_sent(aggregator: Any, tmp_path: Path) -> None:
    # FedACG broadcasts a point ahead of theta. Read against theta itself, each round would take the look-ahead twice.
    thetas = []
    for wire in ("upload", "model"):
        config = config_of(tmp_path, name=wire, wire=wire, algorithm__name="fedacg", fraction_train=0.75)
        with server_of(config, aggregator=aggregator if wire == "model" else None) as strategy:
            start(strategy, grid_of(config), rounds=4)
            sent = strategy.algorithm.download(strategy.checkpoint.server).theta
            assert (sent - strategy.checkpoint.server.theta).abs().max() > 1e-3
            thetas.append(strategy.checkpoint.server.theta)
    torch.testing.assert_close(thetas[0], thetas[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_what_travels_as_a_model_is_theta_where_the_servers_model_is_another_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedADMM, "model", lambda self, server: torch.zeros_like(server.theta))
    config = model_config(tmp_path)
    with server_of(config) as strategy:
        result = start(strategy, grid_of(config), rounds=1)
        theta = strategy.checkpoint.server.theta
        assert theta.abs().max() > 0
        for arrays in (strategy.arrays, result.arrays):
            assert strategy.wire.read_model(arrays).message.equal(theta)
