"""The app that runs on every node: it finds the state that counts, works, writes the new state down, and replies."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from torch.nn import functional

from fedadmm.core.delivery import answered, settled
from fedadmm.core.errors import InputError
from fedadmm.core.optional import HasPersonalModel, trait
from fedadmm.core.round import run_client
from fedadmm.data.examples import Examples, as_examples
from fedadmm.engine.process import one_thread
from fedadmm.flower.messages import NodeRequest, federation_of, pack_description, pack_scores, pack_update, read_request
from fedadmm.flower.settings import FederationSettings, client_of
from fedadmm.flower.wire import WIRES, Payload, WrongFormatError
from fedadmm.runs.export import write_model
from fedadmm.runs.folder import RunFolder
from fedadmm.state.node import NodeStore, SavedState
from fedadmm.training.evaluation import Loss, Metric, accuracy
from fedadmm.training.models import ModelFunction, initial_model
from fedadmm.training.task import LearningTask

DataFunction = Callable[[Context], Any]


def client_app(
    *,
    model: ModelFunction,
    data: DataFunction,
    loss: Loss = functional.cross_entropy,
    metrics: Mapping[str, Metric] | None = None,
    mods: list[Mod] | None = None,
) -> ClientApp:
    """Return the ClientApp of a node.

    model: returns the network. data: returns this node's examples, (inputs, targets), given the Context.
    mods: Flower's, such as fixedclipping_mod; with wire = "model".
    """
    app = ClientApp(mods=mods)

    def node(context: Context) -> Node:
        chosen = {"accuracy": accuracy} if metrics is None else metrics
        return Node(context, model=model, data=data, loss=loss, metrics=chosen)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(node(context).describe(message.content), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(node(context).train(message.content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(node(context).evaluate(message.content), reply_to=message)

    return app


class NodeData(NamedTuple):
    """The data of a federation as one node sees it: its own, whichever client it is."""

    examples: Examples
    test: Examples | None = None
    num_clients: int = 1
    num_classes: int = 0  # a node's model is a function of its own, which is not told

    @property
    def num_examples(self) -> npt.NDArray[np.int64]:
        """The number of examples."""
        return np.array([len(self.examples.targets)])

    def client(self, client: int) -> Examples:
        """Return the node's examples."""
        return self.examples


class Node:
    """One client of a federation, on the machine that has its data; made anew for every message."""

    def __init__(
        self, context: Context, *, model: ModelFunction, data: DataFunction, loss: Loss, metrics: Mapping[str, Metric]
    ) -> None:
        settings = FederationSettings.from_run_config(context.run_config)
        self._algorithm = settings.algorithm
        self.client = client_of(context)
        self._folder = RunFolder(settings.client_folder(context))
        self._examples = as_examples(data(context))
        self._task = LearningTask(
            initial_model(model, seed=settings.seed),
            NodeData(self._examples),
            local=settings.local,
            loss=loss,
            metrics=metrics,
            seed=settings.seed,
        )
        self._wire = WIRES[settings.wire](self._algorithm, self._task.model)
        # What Flower weighs a model by: with wire = "model" its aggregators shall weigh all clients alike.
        self._weight = 1 if settings.wire == "model" else len(self._examples.targets)

    def describe(self, content: RecordDict) -> RecordDict:
        """Say who this is and what its model looks like; a state folder of another federation is refused here."""
        with self._store(federation_of(content)):
            return pack_description(self.client, self._wire.description)

    def train(self, content: RecordDict) -> RecordDict:
        """Answer a request: the new state is on the disk before the reply leaves."""
        request = self._read(content)
        download = request.download
        with self._store(request.federation) as store, one_thread():
            journal = store.journal()
            saved = store.get(settled(journal, request.delivery).acknowledged)
            result, state = run_client(
                self._algorithm,
                download,
                request.assignment,
                state=None if saved is None else saved.state,
                initial=download.theta if request.initial is None else request.initial,
                problem=self._task.problem(request.assignment, buffers=request.buffers),
            )
            arrays, residual = self._wire.pack_upload(
                Payload(result.upload, result.stats.buffers.floats),
                theta=download.theta,
                residual=None if saved is None else saved.residual,
            )
            if result.finite:
                store.write(answered(journal, request.delivery), pending=SavedState(state, residual))
        return pack_update(result, arrays, request=request.delivery.number, num_examples=self._weight)

    def evaluate(self, content: RecordDict) -> RecordDict:
        """Evaluate theta and the client's own model on its examples, and write both to its folder."""
        request = self._read(content)
        theta = request.download.theta
        with self._store(request.federation) as store, one_thread():
            saved = store.get(settled(store.journal(), request.delivery).acknowledged)
            personal = trait(self._algorithm, HasPersonalModel)
            own = theta if saved is None or personal is None else personal.personal_model(saved.state)
            scores: dict[str, float] = {}
            for prefix, weights in {"": theta, "own-": own}.items():
                found = self._task.evaluate_client(self.client, weights, buffers=request.buffers)
                scores |= {f"{prefix}{name}": value for name, value in found.items()}
                # evaluate_client has loaded the model.
                module, name = self._task.model.module, f"{prefix}model.safetensors"
                write_model(self._folder, module, round=request.assignment.round, name=name)
        return pack_scores(scores, num_examples=len(self._examples.targets))

    def _store(self, federation: str) -> NodeStore:
        return NodeStore(
            self._folder.state,
            client=self.client,
            client_type=self._wire.client_type,
            identity={"federation": federation},
        )

    def _read(self, content: RecordDict) -> NodeRequest:
        try:
            request = read_request(content, self._wire)
        except WrongFormatError as error:
            raise InputError(
                f"client {self.client} has another model than the server: {error}; install the same app"
            ) from None
        asked = request.assignment.client
        if asked != self.client:
            raise InputError(
                f"this node is client {self.client}, and it is asked as client {asked}; keep a node's client-id"
            )
        return request
