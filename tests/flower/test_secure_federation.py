"""Secure aggregation over Flower's messages: the bits of the simulator, whichever node is lost in whichever stage."""

import json
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_grid import Array, Fate, LocalGrid, Message, run_config, simulated, start, state_on_disk, strategy_of

import fedadmm
from fedadmm import Simulation
from fedadmm.core.errors import InputError
from fedadmm.flower.secure_node import KEPT
from fedadmm.flower.secure_round import KEYS, SHARES, UNMASK
from fedadmm.secure.protocol import Keys, Revealed, Secrets, Terms
from methods import mostly_slow
from play import identical
from secure_attack import learned
from secure_played import Transcript

STAGES = (KEYS, SHARES, "train", UNMASK)
SCAFFOLD = {"algorithm__name": "scaffold"}


def config_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the example's configuration with five clients, secure aggregation, few steps and no evaluation."""
    usual: dict[str, Any] = {"state_dir": str(folder), "min_available_nodes": 1, "fraction_evaluate": 0.0}
    usual |= {"num_clients": 5, "local__batch_size": 100, "local__epochs": 1, "secure__bits": 32, **SCAFFOLD}
    return run_config(**usual | changes)


def grid_of(config: dict[str, Any], fate: Fate = lambda message: "arrives") -> LocalGrid:
    """Return a grid of nodes that run the example app."""
    from flower_fedadmm.client_app import app

    return LocalGrid(app, config, fate=fate)


def played(config: dict[str, Any], fate: Fate, *, rounds: int = 3) -> tuple[Any, LocalGrid]:
    """Play rounds, hold them to the simulator, and return the records and the grid."""
    grid, strategy = grid_of(config, fate), strategy_of(config)
    try:
        start(strategy, grid, rounds=rounds)
        records = strategy._folder.records()
        simulation = simulated(config, history=[record.clients for record in records])
        assert identical(tuple(strategy.checkpoint), tuple(simulation.checkpoint))
        for client in range(config["num-clients"]):
            mine = state_on_disk(strategy, client, Path(config["state-dir"]))
            assert identical(mine, simulation._store.get(client))
        return records, grid
    finally:
        strategy.close()


def dead_in(stage: str, *clients: int, round: int = 2, how: str = "request lost") -> Fate:
    """Return faults: in this round nodes do not answer from this stage on."""
    numbers: list[Any] = []  # of the sums so far

    def fate(message: Message) -> str:
        about = message.content.config_records.get("secure")
        if about is None:
            return "arrives"
        if about["number"] not in numbers:
            numbers.append(about["number"])
        is_dead = len(numbers) == round and STAGES.index(message.metadata.message_type) >= STAGES.index(stage)
        return how if is_dead and message.metadata.dst_node_id - 100 in clients else "arrives"

    return fate


@pytest.mark.slow
def test_a_masked_round_has_the_bits_of_the_simulator(tmp_path: Path) -> None:
    records, grid = played(config_of(tmp_path), lambda message: "arrives")
    assert not grid.errors
    assert [record.clients for record in records] == [(0, 1, 2, 3, 4)] * 3


@pytest.mark.parametrize("how", mostly_slow(["request lost", "reply lost"], plain=["reply lost"]))
@pytest.mark.parametrize("stage", mostly_slow(STAGES, plain=["train"]))
def test_a_node_that_dies_in_any_stage_leaves_no_trace_unless_it_had_sent(stage: str, how: str, tmp_path: Path) -> None:
    records, grid = played(config_of(tmp_path), dead_in(stage, 3, how=how))
    # With its reply, its update was sent; it counts, though it does not help to take the masks off.
    counted = (0, 1, 2, 3, 4) if stage == UNMASK else (0, 1, 2, 4)
    assert [record.clients for record in records] == [(0, 1, 2, 3, 4), counted, (0, 1, 2, 3, 4)]
    assert records[1].lost == (() if stage == UNMASK else (3,))
    assert not grid.errors


@pytest.mark.parametrize("stage", mostly_slow(STAGES, plain=[UNMASK]))
def test_a_round_with_too_few_is_void_and_moves_nobodys_state(stage: str, tmp_path: Path) -> None:
    # Five clients have four neighbours each, and need three: four have to be left, and in the end three holders.
    records, _ = played(config_of(tmp_path), dead_in(stage, 1, 2, *([3] if stage == UNMASK else [])))
    assert [record.clients for record in records] == [(0, 1, 2, 3, 4), (), (0, 1, 2, 3, 4)]
    assert records[1].lost == (0, 1, 2, 3, 4)


@pytest.mark.slow
def test_nodes_lost_one_after_the_other_and_doubled_messages_change_nothing(tmp_path: Path) -> None:
    first, second = dead_in("train", 0), dead_in(UNMASK, 4, round=3)

    def fate(message: Message) -> str:
        fates = {first(message), second(message)} - {"arrives"}
        return fates.pop() if fates else "doubled"

    records, grid = played(config_of(tmp_path, fraction_train=1.0), fate)
    assert [record.clients for record in records] == [(0, 1, 2, 3, 4), (1, 2, 3, 4), (0, 1, 2, 3, 4)]
    # A second answer under the same masks is refused by the node itself.
    assert grid.errors
    assert all("it was asked twice" in error or "secrets for sum" in error for error in grid.errors)


@pytest.mark.slow
def test_nodes_that_are_restarted_between_two_stages_go_on(tmp_path: Path) -> None:
    def fate(message: Message) -> str:
        grid.states.clear()  # what a SuperNode has in memory
        return "arrives"

    grid = grid_of(config := config_of(tmp_path), fate)
    with closing(strategy_of(config)) as strategy:
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[0].clients == (0, 1, 2, 3, 4)
    assert not grid.errors


@pytest.mark.parametrize("name", mostly_slow(["fast_fedadmm", "fedavg", "fedadmm_auto"], plain=["fast_fedadmm"]))
def test_methods_with_numbers_and_without_state_have_the_bits_of_the_simulator(name: str, tmp_path: Path) -> None:
    records, _ = played(config_of(tmp_path, algorithm__name=name, fraction_train=0.8), lambda message: "arrives")
    assert [len(record.clients) for record in records] == [4, 4, 4]


def test_a_client_out_of_range_sends_nothing_and_says_nothing_else(tmp_path: Path) -> None:
    config = config_of(tmp_path, secure__range=0.01)
    strategy, grid = strategy_of(config), grid_of(config)
    try:
        start(strategy, grid, rounds=1)
        record = strategy._folder.records()[0]
        assert record.clients == ()
        assert not grid.errors
    finally:
        strategy.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"wire": "model"}, "adds uploads; use wire"),
        ({"rollback_to": 1}, "two sums tell"),
        ({"max_norm": "10x"}, "nobody knows the norms"),
        ({"robust__name": "median"}, "the server sees their sum alone"),
        ({"compression__name": "int8"}, "without looking at them"),
    ],
)
def test_what_does_not_go_with_masks_is_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        strategy_of(config_of(tmp_path, **changes))


class Recording(LocalGrid):
    """A grid that keeps all that the server receives, and the secrets of the nodes."""

    def __init__(self, app: Any, config: dict[str, Any]) -> None:
        super().__init__(app, config)
        self.received: dict[str, dict[int, Any]] = {kind: {} for kind in STAGES}  # kind -> client -> records
        self.offers: dict[int, Any] = {}  # what each client was told in stage 2
        self.secrets: dict[int, Secrets] = {}

    def _answer(self, message: Message) -> Message:
        reply, kind = super()._answer(message), message.metadata.message_type
        client = message.metadata.dst_node_id - 100
        if kind in STAGES:
            self.received[kind][client] = reply.content
        if kind == SHARES:
            self.offers[client] = message.content.config_records["secure"]
            kept = Path(self.config["state-dir"]) / self.config["name"] / f"client-{client}" / KEPT
            self.secrets[client] = Secrets(client, *map(bytes.fromhex, json.loads(kept.read_text())["secrets"]))
        return reply

    def transcript(self) -> Transcript:
        """Return what the server has received, as the attack reads it."""
        keys, shares, words, told = (
            {c: r["secure"] for c, r in self.received[kind].items()}
            if kind != "train"
            else {c: r["arrays"] for c, r in self.received[kind].items()}
            for kind in STAGES
        )
        graph = {client: tuple(offer["neighbours"]) for client, offer in self.offers.items()}
        offer = self.offers[0]
        return Transcript(
            Terms(f"{offer['federation']} {offer['number']}", offer["threshold"]),
            graph,
            {client: Keys(*own["keys"]) for client, own in keys.items()},
            {client: dict(zip(graph[client], own["sealed"], strict=True)) for client, own in shares.items()},
            {client: (own["words"].numpy(), own["numbers"].numpy()) for client, own in words.items()},
            {
                client: Revealed(*(dict(zip(own[f"{kind}-of"], own[kind], strict=True)) for kind in Revealed._fields))
                for client, own in told.items()
            },
        )


@pytest.mark.slow
def test_what_the_server_receives_tells_the_sum_and_no_upload(tmp_path: Path) -> None:
    from flower_fedadmm.client_app import app

    config = config_of(tmp_path)
    strategy, grid = strategy_of(config), Recording(app, config)
    before = strategy.checkpoint.server.theta.clone()
    try:
        start(strategy, grid, rounds=1)
    finally:
        strategy.close()
    # No record is there that is not named here, and no field in it.
    fields = {
        kind: {name: set(record) for reply in replies.values() for name, record in reply.items()}
        for kind, replies in grid.received.items()
    }
    assert fields == {
        KEYS: {"secure": {"number", "keys"}},
        SHARES: {"secure": {"number", "sealed"}},
        "train": {"arrays": {"words", "numbers"}, "config": {"client-id", "number", "sent", "digest"}},
        UNMASK: {"secure": {"number", "own_mask", "own_mask-of", "masking", "masking-of"}},
    }
    seen, kept = grid.transcript(), grid.secrets
    for helping in combinations(range(5), seen.terms.threshold - 1):
        found = learned(seen, {client: kept[client] for client in helping})
        assert list(found) == [frozenset(range(5)) - set(helping)]
    # One helper more learns every upload: their mean is the step that theta has made.
    uploads = learned(seen, {client: kept[client] for client in (0, 1, 2)})
    uploads |= learned(seen, {client: kept[client] for client in (2, 3, 4)})
    uploads |= learned(seen, {client: kept[client] for client in (0, 1, 3)})
    assert set(uploads) == {frozenset({client}) for client in range(5)}
    encoding = strategy.wire.encoding
    assert encoding is not None
    steps = [encoding.coordinates.numbers(words)[: len(before)] for words, _ in uploads.values()]
    assert torch.allclose(before + torch.from_numpy(np.mean(steps, axis=0)), strategy.checkpoint.server.theta.double())


@pytest.mark.slow
def test_with_privacy_too_it_has_the_bits_of_the_simulator(tmp_path: Path) -> None:
    from flower_fedadmm import task

    private = {"privacy__clip": 0.5, "privacy__noise": 0.0, "privacy__delta": 0.01}  # noise is not the same twice
    config = config_of(tmp_path, **private)
    strategy = strategy_of(config)
    try:
        start(strategy, grid_of(config), rounds=2)
    finally:
        strategy.close()
    settings, data = strategy.settings, fedadmm.federate(fedadmm.load("digits"), num_clients=5, partition="iid", seed=0)
    same = {key: getattr(settings, key) for key in ("local", "seed", "privacy", "secure")}
    simulation = Simulation(settings.algorithm, model=task.model, data=data, participation=1.0, engine="serial", **same)
    for _ in range(2):
        simulation.advance()
    assert identical(tuple(strategy.checkpoint), tuple(simulation.checkpoint))


@pytest.mark.parametrize("stage", mostly_slow(STAGES, plain=[UNMASK]))
def test_a_node_that_answers_nonsense_is_left_out_or_makes_the_round_void(stage: str, tmp_path: Path) -> None:
    from flower_fedadmm.client_app import app

    class Hostile(LocalGrid):
        def _answer(self, message: Message) -> Message:
            reply = super()._answer(message)
            if message.metadata.dst_node_id == 103 and message.metadata.message_type == stage:
                for record in reply.content.values():
                    record.clear()
            return reply

    config = config_of(tmp_path)
    strategy = strategy_of(config)
    try:
        start(strategy, Hostile(app, config), rounds=1)
        (record,) = strategy._folder.records()
        assert record.clients == ((0, 1, 2, 3, 4) if stage == UNMASK else (0, 1, 2, 4))
    finally:
        strategy.close()


def test_a_node_that_adds_other_masks_than_it_agreed_on_makes_the_round_void(tmp_path: Path) -> None:
    from flower_fedadmm.client_app import app

    class Hostile(LocalGrid):
        def _answer(self, message: Message) -> Message:
            reply = super()._answer(message)
            if message.metadata.dst_node_id == 103 and message.metadata.message_type == "train":
                arrays = reply.content["arrays"]
                arrays["numbers"] = Array(arrays["numbers"].numpy() + np.uint64(12345))
            return reply

    config = config_of(tmp_path)
    with closing(strategy_of(config)) as strategy:
        before = strategy.checkpoint.server
        start(strategy, Hostile(app, config), rounds=1)
        (record,) = strategy._folder.records()
        assert record.clients == ()
        assert record.lost == (0, 1, 2, 3, 4)
        assert identical(strategy.checkpoint.server, before)
