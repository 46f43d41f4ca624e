"""A hostile server: a node refuses what is not a request of its federation, model and method, and keeps its state."""

from pathlib import Path
from typing import Any

import pytest
from hostile import TRILLION, Attack, leaves_out, says, sends
from local_grid import Array, LocalGrid, Message, start
from test_strategy import config_of, grid_of, server_of

from fedadmm.state.node import NodeStore


def _an_infinite_theta(request: Message) -> None:
    array = request.content["arrays"]["theta"]
    request.content["arrays"]["theta"] = Array(array.numpy() * float("inf"))


REQUESTS: dict[str, Attack] = {
    "no arrays": leaves_out("arrays"),
    "no config": leaves_out("config"),
    "half an array": sends(data=lambda data: data[: len(data) // 2]),
    "a trillion floats": sends(data=TRILLION, shape=(10**12,)),
    "another type": sends(dtype="float64"),
    "another client": says("config", client_id=3),
    "no client": says("config", client_id=None),
    "another federation": says("config", federation="mine"),
    "infinitely many epochs": says("config", epochs=float("inf")),
    "a round before the first": says("config", server_round=0),
    "a number that was used": says("config", number=1),
    "an update that it never made": says("config", applied=5),
    "an older one": says("config", applied=0),
    "a rollback that is still to come": says("config", applied=0, rollback=2**53),
    "a rollback of a name": says("config", rollback="x"),
    "integers too many": says("config", integers=[1, 2, 3]),
    "what is not finite": _an_infinite_theta,
}


class Asked:
    """A node after two rounds, what it keeps, and a true request to it."""

    def __init__(self, folder: Path) -> None:
        self.config = config_of(folder)
        self.grid: LocalGrid = grid_of(self.config)
        self._folder = folder / "digits" / "client-0" / "state"
        with server_of(self.config) as strategy:
            start(strategy, self.grid, rounds=2)
            self._kind, self._federation = strategy.wire.client_type, strategy._folder.federation
            (self.request, *_) = strategy.configure_train(3, strategy.arrays, {}, self.grid)
        self._content = self.request.content

    def fresh(self) -> Message:
        """Return the true request, to be changed."""
        copies = {name: type(record)(dict(record)) for name, record in self._content.items()}
        self.request.content = type(self._content)(copies)
        self.request.metadata.__dict__["_message_id"] = "1"
        return self.request

    def kept(self) -> Any:
        """Return which states the node has, and what they are."""
        identity = {"federation": self._federation}
        with NodeStore(self._folder, client=0, client_type=self._kind, identity=identity) as store:
            journal = store.journal()
            return journal, [store.digest(number) for number in (*journal.kept, *journal[:2])]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return Asked(tmp_path_factory.mktemp("asked"))


@pytest.mark.parametrize("attack", REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_is_none_changes_no_state(attack: Attack, asked: Asked) -> None:
    before, request = asked.kept(), asked.fresh()
    attack(request)
    reply = asked.grid._answer(request)
    refused = reply.has_error() or reply.content["metrics"]["finite"] == 0
    assert refused
    assert asked.kept() == before
