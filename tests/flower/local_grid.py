"""A grid without processes: nodes that are called as functions, and whose messages a test can lose."""

import sys
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fedadmm
from fedadmm import Simulation
from play import identical

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # flwr's dependencies announce their own removals on import
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from flwr.serverapp import strategy as flowers
    from flwr.supercore.task_identity import TaskIdentity

    from fedadmm.core.delivery import Request, settled
    from fedadmm.flower import FederationSettings, make_strategy
    from fedadmm.flower.strategy import AlgorithmStrategy
    from fedadmm.state.node import NodeStore

__all__ = ["Array", "ArrayRecord", "ConfigRecord", "Message", "flowers"]  # for tests that need no more of flwr

APP = Path(__file__).parents[2] / "examples" / "flower-fedadmm"
sys.path.insert(0, str(APP))  # as Flower does with the folder of an app

Fate = Callable[[Message], str]  # "arrives", "request lost", "reply lost" or "doubled"


def run_config(**changes: Any) -> dict[str, Any]:
    """Return the configuration of the example app as Flower hands it over, with changes."""
    table = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    flat = {f"{k}.{inner}": v for k, t in table.items() if isinstance(t, dict) for inner, v in t.items()}
    flat |= {key: value for key, value in table.items() if not isinstance(value, dict)}
    changes = {key.replace("__", ".").replace("_", "-"): value for key, value in changes.items()}
    if "algorithm.name" in changes:
        flat = {key: value for key, value in flat.items() if not key.startswith("algorithm.")}
    return flat | changes


def be_a_task() -> None:
    """Let messages be made in this process, as in one that Flower has started."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


class LocalGrid(Grid):
    """Nodes in this process; node 100 + i is client i."""

    def __init__(self, app: ClientApp, config: dict[str, Any], *, fate: Fate = lambda message: "arrives") -> None:
        self.app, self.config, self.fate = app, config, fate
        self.nodes = [100 + client for client in range(config["num-clients"])]
        self.posing: dict[int, int] = {}  # nodes that run as another node would
        self.errors: list[str] = []
        self.states: dict[int, RecordDict] = {}  # what a node's SuperNode keeps in memory
        self._number = 0
        be_a_task()

    def context(self, node: int) -> Context:
        """Return the context of a node."""
        node = self.posing.get(node, node)
        state = self.states.setdefault(node, RecordDict())
        return Context(1, node, {"partition-id": node - 100}, state, self.config, series_id=1)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are connected."""
        return list(self.nodes)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Let the nodes answer one after the other, the last first."""
        replies: list[Message] = []
        for message in reversed(list(messages)):
            self._number += 1
            message.metadata.__dict__["_message_id"] = str(self._number)
            fate = self.fate(message)
            if fate != "request lost":
                answers = [self._answer(message) for _ in range(2 if fate == "doubled" else 1)]
                replies += [] if fate == "reply lost" else answers
        return replies

    def _answer(self, message: Message) -> Message:
        try:
            return self.app(message, self.context(message.metadata.dst_node_id))
        except Exception as error:
            self.errors.append(traceback.format_exc())
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)  # as run_clientapp of Flower's

    def set_run(self, run: Any) -> None: ...
    @property
    def run(self) -> Any: ...
    def create_message(self, *_: Any, **__: Any) -> Any: ...
    def push_messages(self, messages: Iterable[Message]) -> Any: ...
    def pull_messages(self, message_ids: Iterable[str]) -> Any: ...


def simulated(config: dict[str, Any], *, history: list[Iterable[int]], **options: Any) -> Simulation:
    """Return the serial simulation of the example app in which each round selects these clients."""
    from flower_fedadmm import task

    settings = FederationSettings.from_run_config(config)
    digits = fedadmm.load("digits")
    share, seed = settings.client_test, settings.seed
    data = fedadmm.federate(digits, num_clients=settings.num_clients, partition="iid", seed=seed, client_test=share)
    simulation = Simulation(
        settings.algorithm,
        model=task.model,
        data=data,
        personal=settings.personal,
        local=settings.local,
        participation=lambda number, generator, devices: list(history[number - 1]),
        seed=settings.seed,
        compression=settings.compression,
        robust=settings.robust,
        secure=settings.secure,
        engine="serial",
        **options,
    )
    for _ in history:
        simulation.advance()
    return simulation


def strategy_of(config: dict[str, Any], **options: Any) -> AlgorithmStrategy:
    """Return the server's strategy, where its checkpoint left it."""
    from flower_fedadmm import task

    return make_strategy(FederationSettings.from_run_config(config), model=task.model, **options)


def start(strategy: Any, grid: LocalGrid, *, rounds: int, initial_arrays: Any = None) -> Any:
    """Play rounds on a grid."""
    return strategy.start(grid, initial_arrays=initial_arrays or strategy.arrays, num_rounds=rounds, timeout=5)


def assert_books_agree(strategy: AlgorithmStrategy, config: dict[str, Any], state_dir: Callable[[int], Path]) -> None:
    """Compare with the serial simulation of the history that was applied: theta, buffers and every client's state."""
    records = strategy._folder.records()
    simulation = simulated(config, history=[record.clients for record in records])
    assert identical(tuple(strategy.checkpoint), tuple(simulation.checkpoint))
    for client in range(config["num-clients"]):
        assert identical(state_on_disk(strategy, client, state_dir(client)), simulation._store.get(client))


def state_on_disk(strategy: AlgorithmStrategy, client: int, state_dir: Path) -> Any:
    """Return the state from which a node would go on, given what the server applied."""
    folder = state_dir / strategy.settings.name / f"client-{client}" / "state"
    applied = strategy._folder.applied(client)
    if not folder.exists():
        assert applied == 0
        return None
    identity = {"federation": strategy._folder.federation}
    with NodeStore(folder, client=client, client_type=strategy.wire.client_type, identity=identity) as store:
        kept = store.get(
            settled(store.journal(), Request(client, 2**62, applied, strategy._folder.rollback)).acknowledged
        )
        return None if kept is None else kept.state
