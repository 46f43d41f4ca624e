"""Differential privacy over Flower's messages: the simulator's bits without noise, and each round released once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_grid import Array, ArrayRecord, LocalGrid, start, state_on_disk
from test_strategy import config_of, grid_of, server_of

import fedadmm
from fedadmm import Simulation
from fedadmm.core.errors import InputError
from fedadmm.flower import FederationSettings
from fedadmm.uploads.accountant import Accountant
from fedadmm.uploads.secret_draws import DrawnSecretly, secret_normals
from play import identical

PRIVACY = {"privacy__clip": 0.1, "privacy__delta": 1e-2, "algorithm__name": "fast_fedadmm", "algorithm__rho": 0.1}


def _config(folder: Path, **changes: Any) -> dict[str, Any]:
    return config_of(folder, **PRIVACY | {"privacy__noise": 1.0, "fraction_train": 1.0} | changes)


def _simulated(config: dict[str, Any], *, rounds: int) -> Simulation:
    from flower_fedadmm import task

    settings = FederationSettings.from_run_config(config)
    data = fedadmm.federate(
        fedadmm.load("digits"), num_clients=settings.num_clients, partition="iid", seed=settings.seed
    )
    same: dict[str, Any] = {"local": settings.local, "seed": settings.seed, "privacy": settings.privacy}
    simulation = Simulation(settings.algorithm, model=task.model, data=data, participation=1.0, engine="serial", **same)
    for _ in range(rounds):
        simulation.advance()
    return simulation


@pytest.mark.slow
def test_without_noise_theta_and_clipped_states_are_the_simulators(tmp_path: Path) -> None:
    # With everyone in every round there is nothing to draw. clip is adaptive: it travels to the nodes, their bits back.
    # The count's noise is not the same twice, so it is too small to change a count.
    config = _config(tmp_path, privacy__noise=0, privacy__adaptive__quantile=0.4, privacy__adaptive__count_noise=1e-30)
    expected = _simulated(config, rounds=3)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=3)
        assert identical(tuple(strategy.checkpoint), tuple(expected.checkpoint))
        for client in range(config["num-clients"]):
            assert identical(state_on_disk(strategy, client, tmp_path), expected._store.get(client))
        clips = [
            [record.metrics["clip"] for record in records] for records in (strategy._folder.records(), expected.history)
        ]
        assert clips[0] == clips[1]
        assert len(set(clips[0])) == 3


@pytest.mark.slow
def test_noise_is_the_operating_systems_and_as_large_as_it_says(tmp_path: Path) -> None:
    thetas = []
    for where in ("one", "two"):
        config = _config(tmp_path / where)
        with server_of(config) as strategy:
            start(strategy, grid_of(config), rounds=1)
            thetas.append(strategy.checkpoint.server.bar)
            record = strategy._folder.records()[0]
            assert record.client_loss is None
            assert record.metrics["epsilon_spent"] == Accountant(1.0, share=1.0, delta=1e-2).epsilon(1)
    # The same sum twice, each with noise 1.0 x 0.1 over 4 clients.
    assert float((thetas[0] - thetas[1]).std()) == pytest.approx(np.sqrt(2) * 0.1 / 4, rel=0.05)


@pytest.mark.slow
def test_a_round_that_is_played_again_after_a_kill_is_released_once(tmp_path: Path) -> None:
    config = _config(tmp_path, fraction_evaluate=1.0)
    seen: dict[int, set[bytes]] = {}  # round -> the models that left the server for it

    class Watching(LocalGrid):
        def send_and_receive(self, messages: Any, **options: Any) -> Any:
            messages = list(messages)
            for message in messages:
                if message.metadata.message_type in ("train", "evaluate"):
                    arrays = message.content.array_records["arrays"]
                    round = message.content.config_records["config"]["server-round"]
                    key = 2 * int(round) + (message.metadata.message_type == "evaluate")
                    seen.setdefault(key, set()).add(b"".join(array.data for array in arrays.values()))
            return super().send_and_receive(messages, **options)

    class KilledError(Exception):
        pass

    def killed(*_: Any) -> None:
        raise KilledError

    made = []
    for attempt in range(4):
        with server_of(config) as strategy:
            plain = grid_of(config)
            grid = Watching(plain.app, config)
            if attempt < 3:  # the noise is drawn and written down, and the server dies before it commits
                commit, strategy._commit = strategy._commit, killed  # type: ignore[method-assign]
                with pytest.raises(KilledError):
                    start(strategy, grid, rounds=1)
                assert strategy._round.applied is not None
                made.append(strategy._round.applied[0].server.theta)
                assert commit is not killed
            else:
                start(strategy, grid, rounds=2)
    assert torch.equal(made[0], made[1])  # others would be two noisings of the same sum
    assert torch.equal(made[1], made[2])
    assert all(len(models) == 1 for models in seen.values())
    assert sorted(seen) == [2, 3, 4, 5]  # asked and evaluated, in rounds 1 and 2


@pytest.mark.slow
def test_a_federation_ends_before_its_budget_is_exceeded(tmp_path: Path) -> None:
    config = _config(tmp_path, privacy__epsilon=6, num_server_rounds=9)
    with server_of(config) as strategy:
        left = strategy.rounds_left
        accountant = strategy._private.accountant
        assert accountant.epsilon(left) <= 6 < accountant.epsilon(left + 1)
        start(strategy, grid_of(config), rounds=left)
        assert strategy.rounds_left == 0
        assert strategy._folder.records()[-1].budget_spent


def test_an_upload_longer_than_clip_is_refused(tmp_path: Path) -> None:
    config = _config(tmp_path, privacy__noise=0)
    with server_of(config) as strategy:
        grid = grid_of(config)
        answer = grid._answer

        def lying(message: Any) -> Any:
            reply = answer(message)
            if message.metadata.message_type == "train" and message.metadata.dst_node_id == 100:
                arrays = reply.content.array_records["arrays"]
                longer = 1.01 * arrays["step"].numpy()
                reply.content["arrays"] = ArrayRecord({**arrays, "step": Array(longer.astype(np.float32))})
            return reply

        grid._answer = lying  # type: ignore[method-assign]
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[0].refused == (0,)
        assert len(strategy._folder.records()[0].clients) == 3


@pytest.mark.slow
def test_who_takes_part_is_drawn_where_the_seed_does_not_tell_and_nobody_may_come(tmp_path: Path) -> None:
    config = _config(tmp_path, fraction_train=0.5)
    with server_of(config) as strategy:
        assert isinstance(strategy._planner.participation, DrawnSecretly)
        cohorts = {tuple(assignment.client for assignment in strategy._planner.plan(1)) for _ in range(60)}
        assert len(cohorts) > 5
        strategy._planner.participation.rule.__dict__["fraction"] = 0.0
        before = strategy.checkpoint.server.theta
        start(strategy, grid_of(config), rounds=1)
        assert strategy._folder.records()[0].clients == ()
        assert not torch.equal(strategy.checkpoint.server.theta, before)  # noise is released all the same


def test_what_cannot_be_private_is_refused() -> None:
    table = {"clip": 1.0, "noise": 1.0, "delta": 1e-2}
    same: dict[str, Any] = {"num_clients": 4, "algorithm": fedadmm.FedAvg(), "privacy": table}
    with pytest.raises(InputError, match='use wire="upload"'):
        FederationSettings(**same, wire="model")
    with pytest.raises(InputError, match="would forget rounds that were released"):
        FederationSettings(**same, rollback_to=2)
    with pytest.raises(InputError, match="is measured on other clients"):
        FederationSettings(**same, max_norm="100x")
    with pytest.raises(InputError, match=r"set algorithm\.rho to a number"):
        FederationSettings(num_clients=4, privacy=table)
    known = FederationSettings(**same | {"privacy": {"clip": 1.0, "epsilon": 8, "delta": 1e-2}}, num_server_rounds=7)
    assert known.privacy is not None
    assert known.privacy.rounds == 7
    assert FederationSettings(**known.to_table()) == known


def test_secret_normals_are_normal() -> None:
    drawn = secret_normals(100_001)
    assert len(drawn) == 100_001
    assert abs(drawn.mean()) < 0.02
    assert drawn.std() == pytest.approx(1, abs=0.02)
    # Beyond 2 on either side there are 4.55 %.
    assert np.mean(abs(drawn) > 2) == pytest.approx(0.0455, abs=0.004)
    assert abs(np.corrcoef(drawn[:50_000], drawn[50_001:])[0, 1]) < 0.03
