"""One update never enters two sums that were unmasked: whenever the server is killed, and whatever it asks again."""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from local_grid import ConfigRecord, LocalGrid, Message, assert_books_agree, start, strategy_of
from test_secure_federation import config_of, dead_in, grid_of

import fedadmm.flower.secure_node
from fedadmm.flower.folders import check_folders
from fedadmm.flower.secure_round import KEYS, SHARES, UNMASK
from fedadmm.flower.strategy import AlgorithmStrategy
from methods import mostly_slow


class KilledError(BaseException):
    """The server is killed here; nothing of ours catches it."""


class Watched:
    """All that nodes have masked and unmasked, whatever the server makes of it."""

    def __init__(self) -> None:
        self.masked: dict[str, dict[int, bytes]] = {}  # name of a sum -> client -> its words
        self.revealed: dict[str, set[tuple[int, tuple[int, ...]]]] = {}  # name -> who took masks off, for which senders

    def assert_no_update_is_in_two_sums(self) -> None:
        seen: set[bytes] = set()
        for name in self.revealed:
            words = set(self.masked[name].values())
            assert len(words) == len(self.masked[name])
            assert not words & seen, f"sum {name} has an update that another sum has, too"
            seen |= words

    def assert_one_set_of_senders_a_sum(self) -> None:
        for told in self.revealed.values():
            clients = [client for client, _ in told]
            assert len(set(clients)) == len(clients)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found, module = Watched(), fedadmm.flower.secure_node
    masked, reveal = module.masked, module.reveal

    def masking(own: Any, terms: Any, keys: Any, words: Any) -> Any:
        found.masked.setdefault(terms.name, {})[own.client] = b"".join(word.tobytes() for word in words)
        return masked(own, terms, keys, words)

    def revealing(own: Any, terms: Any, *others: Any, senders: Any) -> Any:
        found.revealed.setdefault(terms.name, set()).add((own.client, tuple(senders)))
        return reveal(own, terms, *others, senders=senders)

    monkeypatch.setattr(module, "masked", masking)
    monkeypatch.setattr(module, "reveal", revealing)
    return found


class Killing(LocalGrid):
    """A grid whose server dies before messages of a kind leave in a round, or when they are answered."""

    kind, answered, left = "", False, 0

    def send_and_receive(self, messages: Any, **options: Any) -> Any:
        messages = list(messages)
        is_there = any(message.metadata.message_type == self.kind for message in messages)
        self.left -= is_there
        if is_there and self.left == 0 and not self.answered:
            raise KilledError
        replies = super().send_and_receive(messages, **options)
        if is_there and self.left == 0:
            raise KilledError
        return replies


def killing(config: dict[str, Any], kind: str, *, answered: bool) -> Killing:
    """Return a grid whose server dies in its second round."""
    grid = Killing(grid_of(config).app, config)
    grid.kind, grid.answered, grid.left = kind, answered, 2
    return grid


def _dies_in_commit(strategy: AlgorithmStrategy, round: int) -> None:
    commit = strategy._commit

    def dying(arrays: Any) -> None:
        if strategy.checkpoint.round + 1 == round:
            raise KilledError
        commit(arrays)

    strategy._commit = dying  # type: ignore[method-assign]


Kill = Callable[[AlgorithmStrategy, dict[str, Any]], LocalGrid]


def _before_commit(strategy: AlgorithmStrategy, config: dict[str, Any]) -> LocalGrid:
    _dies_in_commit(strategy, 2)
    return grid_of(config)


def _after_commit(strategy: AlgorithmStrategy, config: dict[str, Any]) -> LocalGrid:
    committed = strategy._folder.commit

    def dying(*arguments: Any, **options: Any) -> None:
        committed(*arguments, **options)
        if strategy._folder.records()[-1].round == 2:
            raise KilledError

    strategy._folder.commit = dying  # type: ignore[method-assign]
    return grid_of(config)


ALL, FEW = (0, 1, 2, 3, 4), (0, 1, 2, 4)
# Where the server is killed in round 2, and who counts then in rounds 2 and 3: client 3 is lost in the first sum after
# the kills.
INSTANTS: dict[str, tuple[Kill, tuple[int, ...], tuple[int, ...]]] = {
    "before keys": (lambda _, config: killing(config, KEYS, answered=False), FEW, ALL),
    "keys are there": (lambda _, config: killing(config, KEYS, answered=True), FEW, ALL),
    "shares are there": (lambda _, config: killing(config, SHARES, answered=True), FEW, ALL),
    "before training": (lambda _, config: killing(config, "train", answered=False), (), FEW),
    "collected": (lambda _, config: killing(config, "train", answered=True), (), FEW),
    "written down": (lambda _, config: killing(config, UNMASK, answered=False), ALL, ALL),
    "asked": (lambda _, config: killing(config, UNMASK, answered=True), ALL, ALL),
    "unmasked": (_before_commit, ALL, ALL),
    "committed": (_after_commit, ALL, FEW),
}


def killed_twice(config: dict[str, Any], kill: Kill) -> None:
    """Play until the server is killed in round 2, and once more from there."""
    for _ in range(2):
        with closing(strategy_of(config)) as strategy:
            left = 2 - strategy.checkpoint.round
            grid = kill(strategy, config)
            if isinstance(grid, Killing):
                grid.left = left
            with suppress(KilledError):
                start(strategy, grid, rounds=left)


@pytest.mark.parametrize("instant", mostly_slow(list(INSTANTS), plain=["collected", "unmasked"]))
def test_a_server_that_is_killed_goes_on_with_the_sum_that_it_has_or_with_none(
    instant: str, watched: Watched, tmp_path: Path
) -> None:
    config = config_of(tmp_path)
    kill, second, third = INSTANTS[instant]
    killed_twice(config, kill)
    # Whoever is lost now must not make another sum of the same updates.
    grid = grid_of(config, dead_in("train", 3, round=1))
    with closing(strategy_of(config)) as strategy:
        start(strategy, grid, rounds=4 - strategy.checkpoint.round)
        records = strategy._folder.records()
        assert_books_agree(strategy, config, lambda client: tmp_path)
    with closing(strategy_of(config)) as strategy:
        strategy.verify(grid_of(config))
    watched.assert_no_update_is_in_two_sums()
    watched.assert_one_set_of_senders_a_sum()
    assert [record.clients for record in records] == [ALL, second, third, ALL]
    assert records[1].lost == tuple(sorted(set(ALL).difference(second)))
    assert not check_folders(tmp_path).problems


def _asked(strategy: AlgorithmStrategy, grid: LocalGrid) -> list[Message]:
    """Ask for the next round as a server does, and return the masked updates."""
    return list(grid.send_and_receive(strategy.configure_train(1, strategy.arrays, ConfigRecord(), grid)))


@pytest.mark.slow
def test_a_client_masks_its_update_of_a_round_once_whatever_the_server_says(watched: Watched, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    grid = grid_of(config)
    with closing(strategy_of(config)) as strategy:
        strategy.aggregate_train(1, _asked(strategy, grid))  # the sum is known to the server
        # It forgets all that it wrote down, asks again, and does not ask client 3.
        strategy._folder.store.note("open sum", None)
        strategy._round.applied = None
        grid.nodes.remove(103)
        grid.states.clear()  # a run of its own, of which nodes know nothing
        strategy.aggregate_train(1, _asked(strategy, grid))
        assert strategy._round.applied is not None
        assert strategy._round.applied[1].clients == ()
    assert len(watched.revealed) == 1
    assert len([error for error in grid.errors if "has sent its update of round 1" in error]) == 4


def test_a_client_reveals_shares_for_one_set_of_senders(watched: Watched, tmp_path: Path) -> None:
    config, questions = config_of(tmp_path), []

    class Asking(LocalGrid):
        def _answer(self, message: Message) -> Message:
            if message.metadata.message_type == UNMASK:
                questions.append(message)
            return super()._answer(message)

    grid = Asking(grid_of(config).app, config)
    with closing(strategy_of(config)) as strategy:
        start(strategy, grid, rounds=1)
    question = questions[0]
    grid.states.clear()
    first, again = grid._answer(question), grid._answer(question)
    assert first.content == again.content  # one that was killed asks again, and learns nothing else
    assert not grid.errors
    del question.content["secure"]["senders"][0]
    grid._answer(question)
    assert "for other senders" in grid.errors[0]
    assert len(watched.revealed) == 1


@pytest.mark.slow
def test_a_client_trains_for_the_round_that_it_drew_its_secrets_for(tmp_path: Path) -> None:
    config = config_of(tmp_path)

    class Lying(LocalGrid):
        def _answer(self, message: Message) -> Message:
            if message.metadata.message_type == "train":
                message.content["config"]["server-round"] = 7
            return super()._answer(message)

    grid = Lying(grid_of(config).app, config)
    with closing(strategy_of(config)) as strategy:
        start(strategy, grid, rounds=1)
        assert strategy._folder.records()[0].clients == ()
    assert all("drew secrets for round 1, and is asked for round 7" in error for error in grid.errors)
    assert len(grid.errors) == 5


@pytest.mark.slow
@pytest.mark.parametrize("secure", [True, False])
def test_noise_that_was_drawn_is_not_drawn_again(secure: bool, tmp_path: Path) -> None:
    private = {"privacy__clip": 0.5, "privacy__noise": 1.0, "privacy__delta": 0.01}
    config = config_of(tmp_path, **private, evaluate_every=1)
    if not secure:
        del config["secure.bits"]
        config["privacy.adaptive.quantile"] = 0.5
    released: list[bytes] = []

    def evaluation(theta: torch.Tensor, _: Any) -> dict[str, float]:
        if theta.numpy().tobytes() != initial:
            released.append(theta.numpy().tobytes())  # as if it were printed here
            if len(released) < 3:
                raise KilledError
        return {}

    with closing(strategy_of(config)) as strategy:
        initial = strategy.checkpoint.server.theta.numpy().tobytes()
    for _ in range(3):
        with closing(strategy_of(config, evaluation=evaluation)) as strategy, suppress(KilledError):
            start(strategy, grid_of(config), rounds=1)
            (record,) = strategy._folder.records()
            assert record.clients == ALL
            assert record.metrics.keys() >= {"epsilon_spent", *([] if secure else ["clip", "within_clip"])}
    assert len(released) == 3
    assert len(set(released)) == 1
