"""The apps of a federation: the one on every node, and the one beside the SuperLink.

A node finds the state that counts, works, writes the new state down, and replies.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from torch.nn import functional

from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import answered, settled
from fedadmm.core.errors import InputError
from fedadmm.core.files import private_files
from fedadmm.core.optional import HasPersonalModel, trait
from fedadmm.core.participation import Devices, Uniform
from fedadmm.core.round import Assignment, Buffers, ClientResult, norm_limit, run_client
from fedadmm.core.state_parts import Personal, without_part
from fedadmm.core.transport import Arrays
from fedadmm.data.datasets import as_dataset
from fedadmm.engine.planner import Planner
from fedadmm.engine.process import one_thread
from fedadmm.flower.descriptions import pack_description
from fedadmm.flower.messages import NodeRequest, federation_of, pack_scores, pack_update, read_request
from fedadmm.flower.own_data import MakeTask, OwnData, task_maker
from fedadmm.flower.prompt_grid import ScreenedGrid, prompt
from fedadmm.flower.secure_node import SecureNode, pack_masked
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.settings import FederationSettings, client_of
from fedadmm.flower.strategy import AlgorithmStrategy, Evaluation
from fedadmm.flower.wire import WIRES, Payload, WrongFormatError
from fedadmm.runs.export import write_model
from fedadmm.runs.records import RunFolder
from fedadmm.state.node import NodeStore, SavedState
from fedadmm.training.evaluation import Loss, Metric
from fedadmm.training.flat import FlatModel
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
    make_task = task_maker(model, loss, metrics)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(Node(context, data, make_task).describe(message.content), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(Node(context, data, make_task).train(message.content), reply_to=message)

    # The stages of secure aggregation around that of training.
    @app.query("secure_keys")
    def secure_keys(message: Message, context: Context) -> Message:
        return Message(SecureNode.of(message, context).keys(), reply_to=message)

    @app.query("secure_shares")
    def secure_shares(message: Message, context: Context) -> Message:
        return Message(SecureNode.of(message, context).shares(), reply_to=message)

    @app.query("secure_unmask")
    def secure_unmask(message: Message, context: Context) -> Message:
        return Message(SecureNode.of(message, context).unmask(), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(Node(context, data, make_task).evaluate(message.content), reply_to=message)

    return app


class Node:
    """One client of a federation, on the machine that has its data; made anew for every message."""

    def __init__(self, context: Context, data: DataFunction, make_task: MakeTask) -> None:
        settings = FederationSettings.from_run_config(context.run_config)
        self._algorithm = settings.algorithm
        self.client, self._node = client_of(context), context.node_id
        about: dict[str, Any] = {"seed": settings.seed, "devices": Devices(settings.num_clients)}
        everyone = Uniform(1.0)
        self._planner = Planner(self._algorithm, participation=everyone, local=settings.local, **about)
        self._num_kept, self._max_norm = settings.keep_checkpoints, settings.max_norm
        self._folder = RunFolder(settings.client_folder(context))
        own = OwnData.split(as_dataset(data(context)), settings, client=self.client)
        self._num_scored = int((own.held_out or own).num_examples[0])
        self._task = make_task(settings, own)
        same: dict[str, Any] = {"seed": settings.seed, "num_clients": settings.num_clients}
        self._wire = WIRES[settings.wire](self._algorithm, self._task.model, settings.uploads, **same)
        # What Flower weighs a model by: with wire = "model" its aggregators shall weigh all clients alike.
        self._weight = 1 if settings.wire == "model" else len(own.examples.targets)

    @private_files()
    def describe(self, content: RecordDict) -> RecordDict:
        """Say who this is and what its model looks like; a state folder of another federation is refused here."""
        self._task.check_batches(client=self.client)
        with self._store(federation_of(content)) as store:
            journal = store.journal()
            own: dict[str, Any] = {"client": self.client, "model": self._wire.description, "journal": journal}
            own["digests"] = (store.digest(journal.acknowledged), store.digest(journal.pending))
            return pack_description(content, node=self._node, folder=self._folder.path, **own)

    @private_files()
    def train(self, content: RecordDict) -> RecordDict:
        """Answer a request: the new state is on the disk before the reply leaves."""
        request = self._read(content)
        download, encoding = request.download, self._wire.encoding
        about: dict[str, Any] = {"client": self.client, "encoding": encoding}
        hidden = None if encoding is None else SecureNode(self._folder.path, content, **about)
        with self._store(request.federation) as store, one_thread():
            journal = store.journal()
            saved = store.get(settled(journal, request.delivery).acknowledged)
            before, residual = (None, None) if saved is None else saved
            initial = download.theta if request.initial is None else request.initial
            problem = self._task.problem(request.assignment, buffers=request.buffers)
            result, state = run_client(
                self._algorithm,
                download,
                request.assignment if hidden is None else self._bounded(request),
                state=before,
                initial=initial,
                problem=problem,
                transport=self._wire.transport,
            )
            number, digest = request.delivery.number, ""
            if hidden is None:
                payload = Payload(result.upload, result.stats.buffers.floats)
                arrays, residual = self._wire.pack_upload(
                    payload, theta=download.theta, residual=residual, encoded=self._encoded(result)
                )
            else:
                result, arrays = hidden.update(result, round=request.assignment.round)
            if result.finite:
                journal = answered(journal, request.delivery, keep=self._num_kept)
                store.write(journal, pending=SavedState(state, residual))
                digest = store.digest(number)
        if hidden is not None:
            return pack_masked(result, arrays, request=number, digest=digest)
        return pack_update(result, arrays, request=number, num_examples=self._weight, digest=digest)

    @private_files()
    def evaluate(self, content: RecordDict) -> RecordDict:
        """Evaluate theta and the client's own model on its examples, and write both to its folder."""
        request = self._read(content)
        theta = request.download.theta
        with self._store(request.federation) as store, one_thread():
            saved = store.get(settled(store.journal(), request.delivery).acknowledged)
            personal = trait(self._algorithm, HasPersonalModel)
            own = theta if saved is None or personal is None else personal.personal_model(saved.state)
            scores: dict[str, float] = {}
            parts = None if saved is None else without_part(saved.state, Personal)[1]
            for prefix, weights in {"": theta, "own-": own}.items():
                found = self._task.evaluate_client(self.client, weights, buffers=request.buffers, personal=parts)
                scores |= {f"{prefix}{name}": value for name, value in found.items()}
                # evaluate_client has loaded the model.
                module, name = self._task.model.module, f"{prefix}model.safetensors"
                write_model(self._folder, module, round=request.assignment.round, name=name)
        return pack_scores(scores, num_examples=self._num_scored)

    def _bounded(self, request: NodeRequest) -> Assignment:
        """Return an assignment with the norm that the upload must not exceed, where the server cannot see it."""
        limit = norm_limit(self._max_norm, theta=request.download.theta, medians=())
        return request.assignment._replace(max_norm=limit)

    def _encoded(self, result: ClientResult) -> Arrays | None:
        """Return the form in which an upload travels; one that is not finite was not encoded, and has any."""
        codec = None if self._wire.transport is None else self._wire.transport.codec
        return result.wire or (None if codec is None else codec.form(self._wire.upload))

    def _store(self, federation: str) -> NodeStore:
        kind, identity = self._wire.client_type, {"federation": federation}
        return NodeStore(self._folder.state, client=self.client, client_type=kind, identity=identity)

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
        work, planned = request.assignment, self._planner.assignment(request.assignment.round, asked)
        if (work.epochs, work.max_gradients) != (planned.epochs, planned.max_gradients):
            raise InputError(
                f"client {asked} is asked for {work.epochs} epochs (gradients: {work.max_gradients}), and [local] "
                f"means {planned.epochs} (gradients: {planned.max_gradients}); use the same version on all machines"
            )
        return request


Wrap = Callable[[AlgorithmStrategy], Strategy]


def server_app(
    *,
    model: ModelFunction,
    test: Callable[[], Any] | None = None,
    loss: Loss = functional.cross_entropy,
    metrics: Mapping[str, Metric] | None = None,
    aggregator: Strategy | None = None,
    wrap: Wrap = lambda strategy: strategy,
) -> ServerApp:
    """Return the ServerApp of a federation; a new run of it goes on from the last checkpoint.

    test: returns examples on which the server evaluates theta after every round, unless nodes keep parts of the model.
    aggregator, wrap: Flower's medians and Krum, and its wrappers for differential privacy; with wire = "model".
    """
    app = ServerApp()
    make_task = task_maker(model, loss, metrics)

    @app.main()
    @private_files()
    def main(grid: Grid, context: Context) -> None:
        settings = FederationSettings.from_run_config(context.run_config)
        # Where nodes keep parts of the model, the server has no whole one to evaluate.
        asked = test if settings.personal is None else None
        evaluation = None if asked is None else _evaluation(make_task(settings, OwnData.of(as_dataset(asked()))))
        strategy = make_strategy(settings, model=model, evaluation=evaluation, aggregator=aggregator)
        grid = prompt(grid, most_bytes=strategy.wire.most_bytes)
        try:
            if settings.verify:
                strategy.verify(grid)
                return
            if settings.rollback_to:
                strategy.roll_back(grid)
                return
            around, before = wrap(strategy), strategy.checkpoint.round
            around.start(
                grid if around is strategy else ScreenedGrid(grid, strategy.sound),
                strategy.arrays,
                num_rounds=strategy.rounds_left,
                timeout=settings.round_timeout,
                evaluate_fn=lambda *_: MetricRecord(dict(strategy.scores)) if strategy.scores else None,
            )
            strategy.check_applied(since=before)
        finally:
            strategy.close()

    return app


def make_strategy(
    settings: FederationSettings,
    *,
    model: ModelFunction,
    evaluation: Evaluation | None = None,
    aggregator: Strategy | None = None,
) -> AlgorithmStrategy:
    """Return the strategy of a federation, where its checkpoint left it."""
    network = FlatModel(initial_model(model, seed=settings.seed), personal=settings.personal)
    folder = ServerFolder(settings, initial=network.weights.clone())
    return AlgorithmStrategy(settings, model=network, folder=folder, evaluation=evaluation, aggregator=aggregator)


def _evaluation(task: LearningTask) -> Evaluation:
    def evaluate(theta: Vector, buffers: Buffers) -> dict[str, float]:
        with one_thread():
            return task.evaluate_client(0, theta, buffers=buffers)

    return evaluate
