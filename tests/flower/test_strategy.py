"""The strategy and the client app together, without processes: theta is the serial simulator's, to the bit."""

from pathlib import Path
from typing import Any

import pytest
from local_grid import LocalGrid, assert_books_agree, run_config, start, strategy_of

from fedadmm.algorithms import ALGORITHMS


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """Return the example's configuration, with state in a folder of the test."""
    return run_config(state_dir=str(tmp_path), min_available_nodes=1)


def grid_of(config: dict[str, Any], **options: Any) -> LocalGrid:
    from flower_fedadmm.client_app import app

    return LocalGrid(app, config, **options)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_theta_and_states_are_the_serial_simulators(name: str, tmp_path: Path) -> None:
    config = run_config(
        state_dir=str(tmp_path), algorithm__name=name, fraction_train=0.75, fraction_evaluate=0.0
    )
    config["min-available-nodes"] = 1
    strategy = strategy_of(config)
    start(strategy, grid_of(config), rounds=3)
    assert [len(record.clients) for record in strategy._checkpoint.records()] == [3, 3, 3]
    assert_books_agree(strategy, config, tmp_path)
    strategy.close()
