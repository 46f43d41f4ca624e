"""The strategy and the client app together, without processes: theta is the serial simulator's, to the bit."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_grid import Fate, LocalGrid, assert_books_agree, run_config, simulated, start, strategy_of
from safetensors.torch import load_file

from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.errors import InputError
from fedadmm.flower import client_nodes
from methods import ON_NETWORKS, PLAIN, mostly_slow

FEDADMM = {"algorithm__name": "fedadmm", "algorithm__rho": 0.1, "algorithm__eta": "seen", "algorithm__start": "global"}


def config_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the example's configuration with FedADMM, its state in a folder, few steps a visit, and no evaluation."""
    usual = {"state_dir": str(folder), "min_available_nodes": 1, "fraction_evaluate": 0.0, "local__batch_size": 60}
    usual["evaluate_every"] = 1
    algorithm = {} if "algorithm__name" in changes else FEDADMM
    return run_config(**{**usual, **algorithm, **changes})


def grid_of(config: dict[str, Any], **options: Any) -> LocalGrid:
    """Return a grid of nodes that run the example app."""
    from flower_fedadmm.client_app import app

    return LocalGrid(app, config, **options)


@contextmanager
def server_of(config: dict[str, Any], **options: Any) -> Iterator[Any]:
    """Give the strategy, and let go of its folder afterwards."""
    strategy = strategy_of(config, **options)
    try:
        yield strategy
    finally:
        strategy.close()


def random_fate(seed: int) -> Fate:
    """Return faults for train messages: a third of them are lost or doubled."""
    generator = random.Random(seed)
    fates = ["arrives"] * 6 + ["request lost", "reply lost", "doubled"]
    return lambda message: generator.choice(fates) if message.metadata.message_type == "train" else "arrives"


@pytest.mark.parametrize("name", mostly_slow(name for name in ALGORITHMS if name in ON_NETWORKS and name != "fedpd"))
def test_theta_and_states_are_the_serial_simulators(name: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, algorithm__name=name, fraction_train=0.75)
    rounds = 3 if name in PLAIN else 2  # in the second, two of three come again at least
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=rounds)
        assert [len(record.clients) for record in strategy._folder.records()] == [3] * rounds
        assert_books_agree(strategy, config, lambda client: tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [
        {"local__solver": "lbfgs", "local__tolerance": 0.01, "local__epochs": 20},
        {"local__solver.gd": 0.5, "local__solver.sgd": 0.5, "local__seconds": 1.0, "local__speed": 900.0},
    ],
    ids=["tolerance", "time"],
)
def test_a_node_solves_as_a_simulated_client_does_and_says_how_exactly(limits: dict[str, Any], tmp_path: Path) -> None:
    config = config_of(tmp_path, **limits)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=2)
        records = strategy._folder.records()
        expected = simulated(config, history=[record.clients for record in records]).history
        for record, theirs in zip(records, expected, strict=True):
            told = {key: record.metrics.get(key) for key in theirs.metrics}
            assert told == theirs.metrics
            assert record.gradient_evaluations == theirs.gradient_evaluations
            assert record.metrics["epsilon_max"] > 0
        assert_books_agree(strategy, config, lambda client: tmp_path)


def test_clients_that_compute_unasked_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="FedPD's clients compute in rounds in which nobody asks them"):
        strategy_of(config_of(tmp_path, algorithm__name="fedpd"))


@pytest.mark.parametrize("name", mostly_slow(["fedadmm", "feddyn", "scaffold", "fedadmm_released"], plain=["fedadmm"]))
def test_lost_and_doubled_messages_and_restarts_leave_no_trace(name: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, algorithm__name=name)
    grid = grid_of(config, fate=random_fate(1))
    for _ in range(3):  # each a new run of the ServerApp, which goes on from the checkpoint
        with server_of(config) as strategy:
            start(strategy, grid, rounds=2)
    with server_of(config) as strategy:
        assert strategy.checkpoint.round == 6
        assert sum(len(record.lost) for record in strategy._folder.records()) > 2
        assert not grid.errors
        assert_books_agree(strategy, config, lambda client: tmp_path)


@pytest.mark.slow
def test_a_personal_head_stays_on_its_node_whatever_is_lost(tmp_path: Path) -> None:
    config = config_of(tmp_path, algorithm__name="fedavg", personal="3.*", client_test=0.25, fraction_evaluate=1.0)
    grid = grid_of(config, fate=random_fate(1))
    with server_of(config) as strategy:
        result = start(strategy, grid, rounds=4)
        assert not grid.errors
        assert_books_agree(strategy, config, lambda client: tmp_path)
        records = strategy._folder.records()
        assert sum(len(record.lost) for record in records) > 1
        sent = 4 * (64 * 100 + 100)  # bytes of the body, and nothing of the head
        assert records[-1].bytes_up == sent * len(records[-1].clients)
        simulation = simulated(config, history=[record.clients for record in records])
        told = result.evaluate_metrics_clientapp[4]["accuracy"]
        examples = simulation.task.held_out.num_examples
        right = np.average(simulation.evaluate_clients().values, weights=examples)
        assert told == pytest.approx(right)
        state_dir = tmp_path / strategy.settings.name
    assert "3.weight" not in load_file(state_dir / "server" / "model.safetensors")
    own = load_file(state_dir / "client-0" / "own-model.safetensors")
    assert own["3.weight"].equal(simulation.client_model(0).state_dict()["3.weight"])


@pytest.mark.slow
def test_a_server_that_dies_before_its_commit_plays_the_round_again(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
        replies = grid.send_and_receive(strategy.configure_train(2, strategy.arrays, {}, grid))
        strategy.aggregate_train(2, replies)  # and no configure_evaluate: it died
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        assert [record.round for record in strategy._folder.records()] == [1, 2, 3]
        assert_books_agree(strategy, config, lambda client: tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("rounds_lost", "applied"), [(1, (0, 1, 2, 3)), (2, ())], ids=["pending", "confirmed"])
def test_an_older_checkpoint_is_healed_while_the_lost_round_is_pending(
    rounds_lost: int, applied: tuple[int, ...], tmp_path: Path
) -> None:
    config = config_of(tmp_path)
    grid, server = grid_of(config), tmp_path / "digits" / "server"
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
    shutil.copytree(server, tmp_path / "copy")
    with server_of(config) as strategy:
        start(strategy, grid, rounds=rounds_lost)
    shutil.rmtree(server)
    shutil.copytree(tmp_path / "copy", server)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[1].clients == applied
        if applied:
            assert_books_agree(strategy, config, lambda client: tmp_path)
    # Two rounds later the clients have had the first of them confirmed, and it cannot be taken back.
    refusals = ["the server's checkpoint is older; restore" in error for error in grid.errors]
    assert refusals == ([] if applied else [True] * 4)


@pytest.mark.slow
def test_a_client_whose_disk_was_lost_is_left_out_and_named(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        shutil.rmtree(tmp_path / "digits" / "client-2")
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[-1].clients == (0, 1, 3)
        assert strategy._folder.records()[-1].lost == (2,)
    assert "of client 2, and the state here is of update 0: it is older" in grid.errors[-1]


@pytest.mark.slow
def test_newcomers_get_the_initial_model_where_the_method_asks_for_it(tmp_path: Path) -> None:
    # With 0.5 of the clients in a round some join late, when theta is no longer theta^0.
    method = {"algorithm__name": "fedadmm", "algorithm__eta": "participation", "algorithm__newcomer": "initial"}
    config = config_of(tmp_path, fraction_train=0.5, **method)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=3)
        assert_books_agree(strategy, config, lambda client: tmp_path)


@pytest.mark.slow
def test_a_run_with_other_settings_is_refused_and_more_rounds_are_not(tmp_path: Path) -> None:
    with server_of(config_of(tmp_path)) as strategy:
        start(strategy, grid_of(config_of(tmp_path)), rounds=1)
    with server_of(config_of(tmp_path, num_server_rounds=9)) as strategy:
        assert strategy.checkpoint.round == 1
    with pytest.raises(InputError, match=r"written with local.learning-rate 0.1, here it is 0.2.* name"):
        strategy_of(config_of(tmp_path, local__learning_rate=0.2))


def test_the_servers_own_evaluation_stands_in_the_records(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with server_of(config, evaluation=lambda theta, buffers: {"accuracy": float(theta.sum())}) as strategy:
        before = strategy.scores["accuracy"]
        start(strategy, grid_of(config), rounds=1)
        (record,) = strategy._folder.records()
        assert record.accuracy == float(strategy.checkpoint.server.theta.sum()) != before
        assert strategy.scores == {"accuracy": record.accuracy}


def test_a_node_may_name_its_client_by_either_key(tmp_path: Path) -> None:
    from flower_fedadmm import task

    config = config_of(tmp_path)
    context = grid_of(config).context(102)
    (inputs, _), partition = task.data(context), context.node_config.pop("partition-id")
    context.node_config["client-id"] = partition
    assert task.data(context)[0].equal(inputs)


def test_who_is_awaited_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(client_nodes, "log", lambda level, text, *values: told.append(text % values))
    grid = grid_of(config_of(tmp_path))
    grid.nodes, late = grid.nodes[:3], grid.nodes[3:]
    naps = iter([[], [], late])
    monkeypatch.setattr(client_nodes.time, "sleep", lambda seconds: grid.nodes.extend(next(naps)))
    with server_of(config_of(tmp_path, min_available_nodes=4)) as strategy:
        start(strategy, grid, rounds=1)
    waiting = [line for line in told if line.startswith("Waiting")]
    assert waiting == ["Waiting for nodes: 3 of 4 (min-available-nodes) are there"]


@pytest.mark.slow
def test_the_evaluation_reports_theta_and_the_clients_own_models(tmp_path: Path) -> None:
    config = config_of(tmp_path, fraction_evaluate=1.0)
    with server_of(config) as strategy:
        result = start(strategy, grid_of(config), rounds=2)
        metrics = result.evaluate_metrics_clientapp[2]
        simulation = simulated(config, history=[range(4), range(4)])
        for name in ("loss", "accuracy"):
            for prefix, kind in (("", "theta"), ("own-", "own")):
                values = simulation.evaluate_clients(name, model=kind).values
                expected = np.average(values, weights=simulation.task.data.num_examples)
                assert metrics[f"{prefix}{name}"] == pytest.approx(expected, rel=1e-12)
        theta = strategy.checkpoint.server.theta
    folder = tmp_path / "digits" / "client-3"
    weight = load_file(folder / "model.safetensors")["1.weight"]
    assert weight.flatten().equal(theta[: weight.numel()])
    assert not load_file(folder / "own-model.safetensors")["1.weight"].equal(weight)


@pytest.mark.slow
def test_nodes_and_server_evaluate_every_so_often_and_the_last_round_in_any_case(tmp_path: Path) -> None:
    config = config_of(tmp_path, fraction_evaluate=1.0, evaluate_every=2, num_server_rounds=5)
    with server_of(config, evaluation=lambda theta, buffers: {"accuracy": 0.5}) as strategy:
        result = start(strategy, grid_of(config), rounds=5)
        assert [record.round for record in strategy._folder.records() if record.accuracy is not None] == [2, 4, 5]
    assert [*result.evaluate_metrics_clientapp] == [2, 4, 5]


@pytest.mark.slow
def test_a_node_is_told_its_first_visit_and_its_last_round(tmp_path: Path) -> None:
    config = config_of(tmp_path, algorithm__name="told:Told", fraction_train=0.75)
    with server_of(config) as strategy:
        start(strategy, grid_of(config, fate=random_fate(1)), rounds=3)
    with server_of(config) as strategy:  # a server that was started again
        start(strategy, grid_of(config, fate=random_fate(2)), rounds=4)
        records = strategy._folder.records()
        last = {client: record.round for record in records for client in record.clients}
        assert sum(len(record.clients) for record in records) > len(last)  # else this would prove little
        assert {client: strategy._folder.store.round_of(client) for client in last} == last
        # A state that counts is that of the client's last applied round, and nothing it was told was wrong.
        assert_books_agree(strategy, config, lambda client: tmp_path)
        simulation = simulated(config, history=[record.clients for record in records])
        for client in last:
            assert simulation._store.get(client) == (last[client], 0.0)


@pytest.mark.slow
def test_the_model_of_the_server_is_evaluated_and_stored(tmp_path: Path) -> None:
    evaluated = []
    config = config_of(tmp_path, algorithm__name="told:Doubled", fraction_evaluate=1.0)
    with server_of(config, evaluation=lambda theta, buffers: evaluated.append(theta.clone()) or {}) as strategy:
        start(strategy, grid_of(config), rounds=2)
        twice = 2 * strategy.checkpoint.server.theta
        assert np.array_equal(evaluated[-1], twice)
        assert np.array_equal(strategy.wire.read_model(strategy.arrays).message, twice)
        assert not np.array_equal(twice, strategy.checkpoint.server.theta)
        stored = load_file(strategy._folder.folder.path / "model.safetensors")
        sent = load_file(tmp_path / config["name"] / "client-0" / "model.safetensors")
        for name, weights in stored.items():
            assert np.array_equal(sent[name], weights)
