"""What becomes of uploads is the same over Flower's messages as in the simulator: bits, bytes and what is held back."""

from pathlib import Path
from typing import Any

import pytest
from local_grid import Array, ArrayRecord, assert_books_agree, simulated, start
from test_strategy import config_of, grid_of, random_fate, server_of

from fedadmm.core.errors import InputError
from fedadmm.flower import FederationSettings
from methods import mostly_slow

TOP_K = {"compression__name": "top_k", "compression__keep": 0.05, "compression__error_feedback": True}
TABLES: dict[str, dict[str, Any]] = {
    "int8": {"compression__name": "int8"},
    "top_k, kept": TOP_K,
    "random_k": {"compression__name": "random_k", "compression__keep": 0.1},
    "median, bfloat16": {"robust__name": "median", "compression__name": "bfloat16"},
    "clipped": {"robust__name": "norm_clip", "robust__norm": 0.5},
}


@pytest.mark.parametrize("what", mostly_slow(TABLES, plain=("top_k, kept",)))
def test_theta_states_and_bytes_are_the_serial_simulators(what: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, fraction_train=0.75, **TABLES[what])
    with server_of(config) as strategy:
        start(strategy, grid_of(config, fate=random_fate(3)), rounds=3)
        assert_books_agree(strategy, config, lambda client: tmp_path)
        records = strategy._folder.records()
        expected = simulated(config, history=[record.clients for record in records]).history
        assert [record.bytes_up for record in records] == [record.bytes_up for record in expected]


@pytest.mark.slow
def test_a_reply_takes_as_many_bytes_as_the_record_says(tmp_path: Path) -> None:
    sizes: list[int] = []
    config = config_of(tmp_path, **TOP_K)
    with server_of(config) as strategy:
        grid = grid_of(config)
        sent = grid.send_and_receive

        def counted(*arguments: Any, **options: Any) -> Any:
            replies = list(sent(*arguments, **options))
            arrays = [reply.content.array_records.get("arrays") for reply in replies if reply.has_content()]
            sizes.append(sum(array.numpy().nbytes for found in arrays if found for array in found.values()))
            return replies

        grid.send_and_receive = counted  # type: ignore[method-assign]
        start(strategy, grid, rounds=1)
        assert max(sizes) == strategy._folder.records()[0].bytes_up


def test_places_that_no_compressor_made_are_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, **TOP_K)
    with server_of(config) as strategy:
        grid = grid_of(config)
        answer = grid._answer

        def lying(message: Any) -> Any:
            reply = answer(message)
            if message.metadata.message_type == "train" and message.metadata.dst_node_id == 100:
                arrays = reply.content.array_records["arrays"]
                everywhere = 255 + 0 * arrays["delta.places"].numpy()
                reply.content["arrays"] = ArrayRecord({**arrays, "delta.places": Array(everywhere)})
            return reply

        grid._answer = lying  # type: ignore[method-assign]
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[0].refused == (0,)
        assert 1 in strategy._folder.records()[0].clients


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InputError, match='wire="model" carries models as they are, and compression does not'):
        FederationSettings(num_clients=4, wire="model", compression={"name": "int8"})
    with pytest.raises(InputError, match="liars=1 needs 5 uploads in a round, and 4 clients take part"):
        FederationSettings(num_clients=4, robust={"name": "krum", "liars": 1})
    with pytest.raises(InputError, match="unknown key 'attack'"):
        FederationSettings(num_clients=4, attack={"name": "lie", "share": 0.5})


@pytest.mark.slow
def test_a_void_round_moves_no_state(tmp_path: Path) -> None:
    config = config_of(tmp_path, robust__name="krum", robust__liars=0, fraction_train=0.75)
    asked: list[Any] = []

    def fate(message: Any) -> str:  # one of the three of round 1 is lost, and Krum needs three
        asked.append(message)
        return "reply lost" if len([own for own in asked if own.metadata.message_type == "train"]) == 1 else "arrives"

    with server_of(config) as strategy:
        start(strategy, grid_of(config, fate=fate), rounds=2)
        first, second = strategy._folder.records()
        assert (first.clients, len(first.lost), len(second.clients)) == ((), 3, 3)
        assert strategy.checkpoint.seen == 3
        assert_books_agree(strategy, config, lambda client: tmp_path)
