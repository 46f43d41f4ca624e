"""A federation that goes back to an earlier round: server and clients together, or it says who cannot."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from local_grid import LocalGrid, assert_books_agree, start, state_on_disk
from test_strategy import config_of, grid_of, server_of
from typer.testing import CliRunner

from fedadmm.cli.federation import app
from fedadmm.core.errors import InputError
from fedadmm.flower import server_app
from fedadmm.flower.folders import findings
from fedadmm.runs.export import read_model
from play import identical


def ask(config: dict[str, Any], grid: LocalGrid, **changes: Any) -> None:
    """Run the server's app with other settings, as `fedadmm federation rollback` and `verify` do."""
    from flower_fedadmm import task

    grid.config = config | {key.replace("_", "-"): value for key, value in changes.items()}
    try:
        server_app(model=task.model)(grid, grid.context(100))
    finally:
        grid.config = config


def problems(folder: Path) -> list[str]:
    return [finding.text for finding in findings(folder) if finding.kind == "problem"]


@pytest.mark.slow
def test_rounds_that_are_played_again_are_the_same_to_the_bit(tmp_path: Path) -> None:
    config = config_of(tmp_path, fraction_train=0.5)  # so that some have later updates, and some have not
    grid = grid_of(config)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        after_2 = strategy.checkpoint
        start(strategy, grid, rounds=3)
        after_5, records = strategy.checkpoint, strategy._folder.records()
    assert any(set(record.clients) != set(records[0].clients) for record in records)  # else this would prove little
    ask(config, grid, rollback_to=2)
    assert problems(tmp_path) == []
    with server_of(config) as strategy:
        assert identical(tuple(strategy.checkpoint), tuple(after_2))
        assert [record.round for record in strategy._folder.records()] == [1, 2]
        assert_books_agree(strategy, config, lambda client: tmp_path)
        model = read_model(strategy._folder.folder)
        assert model is not None
        assert model.round == 2
        start(strategy, grid, rounds=3)
        assert identical(tuple(strategy.checkpoint), tuple(after_5))
        assert_books_agree(strategy, config, lambda client: tmp_path)
    assert not grid.errors


@pytest.mark.slow
def test_a_client_that_had_not_joined_by_then_begins_anew(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    late = grid.nodes.pop()
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
        grid.nodes.append(late)
        start(strategy, grid, rounds=2)
        assert strategy._folder.records()[-1].clients == (0, 1, 2, 3)
    ask(config, grid, rollback_to=1)
    with server_of(config) as strategy:
        assert strategy._folder.applied(3) == 0
        start(strategy, grid, rounds=1)
        assert_books_agree(strategy, config, lambda client: tmp_path)
    assert not grid.errors


@pytest.mark.slow
def test_who_cannot_follow_is_named_and_nothing_is_changed_unless_it_is_forced(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        shutil.copytree(tmp_path / "digits" / "client-1", tmp_path / "of-round-2")
        grid.config = config | {"keep-checkpoints": 0}  # an app that keeps nothing
        start(strategy, grid, rounds=2)
        grid.config = config
        before = strategy.checkpoint
    grid.nodes.remove(103)
    with pytest.raises(InputError, match="nothing was changed") as refused:
        ask(config, grid, rollback_to=2)
    said = str(refused.value)
    assert "of client 0, and the states here are of updates" in said
    assert "client 3 is not connected" in said
    with server_of(config) as strategy:
        assert identical(tuple(strategy.checkpoint), tuple(before))
    ask(config, grid, rollback_to=2, rollback_force=True)
    # One of them has its folder of that time restored, and goes on with the rest left out.
    shutil.rmtree(tmp_path / "digits" / "client-1")
    shutil.copytree(tmp_path / "of-round-2", tmp_path / "digits" / "client-1")
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[-1].clients == (1,)


@pytest.mark.slow
def test_only_so_many_checkpoints_are_kept_and_another_round_is_a_sentence(tmp_path: Path) -> None:
    config = config_of(tmp_path, keep_checkpoints=2)
    with server_of(config) as strategy:
        start(strategy, grid_of(config), rounds=5)
        assert strategy._folder.store.kept_rounds == [3, 4]
    facts = {finding.name: finding.text for finding in findings(tmp_path)}
    assert facts["digits/server: rounds to roll back to"] == "3, 4"
    assert facts["digits/client-0: older updates, for a rollback"].count(",") == 1
    with pytest.raises(InputError, match=r"round 2 is not kept .* those of rounds 3, 4 are"):
        ask(config, grid_of(config), rollback_to=2)


@pytest.mark.slow
def test_an_older_copy_of_the_server_is_refused_after_a_rollback_too(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid, server = grid_of(config), tmp_path / "digits" / "server"
    with server_of(config) as strategy:
        start(strategy, grid, rounds=3)
    ask(config, grid, rollback_to=2)
    shutil.copytree(server, tmp_path / "copy")
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
    shutil.rmtree(server)
    shutil.copytree(tmp_path / "copy", server)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[-1].clients == ()
    assert all("the server's checkpoint is older" in error for error in grid.errors)


@pytest.mark.slow
def test_verify_compares_digests_and_names_a_state_that_is_another(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        assert all(strategy._folder.digest_of(client) for client in range(4))
        other = strategy._folder.digest_of(2)
        number = strategy._folder.applied(1)
    ask(config, grid, verify=True)
    with server_of(config) as strategy:  # as if client 1 had had the state of client 2
        strategy._folder.store.note("state of client 1", f"{number} {other}")
    with pytest.raises(InputError, match=f"client 1 has another state under update {number}"):
        ask(config, grid, verify=True)


@pytest.mark.slow
def test_a_client_whose_machine_was_lost_with_its_state_begins_anew(tmp_path: Path) -> None:
    config = config_of(tmp_path, algorithm__name="told:Told")  # whose clients are told their last round
    grid, server = grid_of(config), tmp_path / "digits" / "server"
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        seen = strategy.checkpoint.seen
    shutil.rmtree(tmp_path / "digits" / "client-2")
    said = CliRunner().invoke(app, ["rebind", "2", str(server), "--anew"])
    assert "begins as a newcomer" in said.stdout
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        assert [record.clients for record in strategy._folder.records()] == [(0, 1, 2, 3)] * 4
        assert strategy.checkpoint.seen == seen  # it is the same client
        # As if it had not been there before: the state says so, in which it was told nothing wrong.
        assert state_on_disk(strategy, 2, tmp_path) == (4, 0.0)
    assert not grid.errors
    ask(config, grid, verify=True)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [{"name": "fast_fedadmm"}, {"name": "averaged", "inner.name": "fast_fedadmm"}])
def test_a_lost_dual_does_not_pull_the_model_for_ever(algorithm: dict[str, Any], tmp_path: Path) -> None:
    config = config_of(tmp_path, keep_checkpoints=2, **{f"algorithm__{key}": value for key, value in algorithm.items()})
    grid, server = grid_of(config), tmp_path / "digits" / "server"
    with server_of(config) as strategy:
        start(strategy, grid, rounds=2)
        before = strategy.checkpoint
    shutil.rmtree(tmp_path / "digits" / "client-2")
    for _ in range(2):  # the second time there is nothing left to let go of
        CliRunner().invoke(app, ["rebind", "2", str(server), "--anew"])
    with server_of(config) as strategy:
        after = strategy.checkpoint
        assert after.server.mu_sum.equal(before.server.mu_sum * (1 - 1 / 4))  # of 4 clients
        assert identical(after.server._replace(mu_sum=before.server.mu_sum), before.server)
        assert (after.round, after.seen) == (before.round, before.seen)
        assert strategy._folder.store.kept_rounds == []  # a rollback would bring the dual back
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[-1].clients == (0, 1, 2, 3)
    assert not grid.errors
    assert problems(server) == []


def test_verify_names_a_node_that_is_left_out(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with server_of(config) as strategy:
        start(strategy, grid, rounds=1)
    (tmp_path / "digits" / "client-1" / "key").unlink()  # and so the node makes another
    with pytest.raises(InputError, match="node 101 is left out: client 1 joined with key"):
        ask(config, grid, verify=True)
