"""Any Algorithm of ours as a Flower strategy: rounds whose books are exact whatever becomes of nodes and messages."""

import time
from collections.abc import Callable, Iterable
from logging import INFO, WARNING
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import NONE, Collection
from fedadmm.core.participation import Devices, Uniform
from fedadmm.core.round import Assignment, Buffers, ClientResult, RoundSummary, ServerCheckpoint, run_round
from fedadmm.core.seeds import stream
from fedadmm.engine.planner import Planner
from fedadmm.engine.threads import one_thread
from fedadmm.flower.client_nodes import ClientNodes, reason
from fedadmm.flower.replies import aggregated_by, reply_of, visit_of
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.settings import FederationSettings
from fedadmm.flower.wire import MessageFormat, ModelWire, Payload, Wire, make_wire
from fedadmm.runs.records import Record
from fedadmm.training.flat import FlatModel

Evaluation = Callable[[Vector, Buffers], dict[str, float]]


class _Closing(NamedTuple):
    """A round whose uploads were averaged, and which does not count yet."""

    progress: ServerCheckpoint
    tally: RoundSummary
    began: float


class AlgorithmStrategy(Strategy):
    """Rounds of an algorithm over the nodes of a grid.

    evaluation: the server's own, of theta and buffers; its numbers stand in the round's record.
    aggregator: a strategy of Flower's whose aggregate_train takes the place of the mean, such as FedMedian or Krum;
        with wire="model". Flower's wrappers for differential privacy go around this strategy instead.
    """

    def __init__(
        self,
        settings: FederationSettings,
        *,
        model: FlatModel,
        checkpoint: ServerFolder,
        evaluation: Evaluation | None = None,
        aggregator: Strategy | None = None,
    ) -> None:
        self.settings, self.algorithm = settings, settings.algorithm
        self._model, self._folder, self._aggregator = model, checkpoint, aggregator
        self._evaluation = evaluation
        self.format = MessageFormat(self.algorithm, model)
        self._wire: Wire = make_wire(settings.wire, self.format)
        assert aggregator is None or isinstance(self._wire, ModelWire), 'an aggregator takes models: wire="model"'
        participation = Uniform(settings.fraction_train)
        participation.check(settings.num_clients)
        settings.local.check(settings.num_clients)
        self._devices = Devices(settings.num_clients)
        self._planner = Planner(
            self.algorithm, participation=participation, local=settings.local, devices=self._devices, seed=settings.seed
        )
        self._nodes = ClientNodes(
            federation=checkpoint.federation,
            description=self.format.description,
            num_clients=settings.num_clients,
            timeout=settings.round_timeout,
        )
        self.progress = checkpoint.progress or ServerCheckpoint(
            0, self.algorithm.init_server(checkpoint.initial), model.buffers(), 0.0
        )
        self.scores = self._evaluated(self.progress)
        self._collection = Collection(0, clients=())
        self._sent: list[Message] = []
        self._closing: _Closing | None = None
        self._began = 0.0

    def close(self) -> None:
        """Let go of the checkpoint's folder."""
        self._folder.close()

    @property
    def arrays(self) -> ArrayRecord:
        """The server's model as Flower users know it."""
        return self.format.model_arrays(self.progress.server.theta, self.progress.buffers.floats)

    def summary(self) -> None:
        """Log what is run."""
        log(INFO, "\t├──> %s", self.algorithm)
        log(INFO, "\t├──> %s, wire %s", self.settings.local, self.settings.wire)
        log(INFO, "\t└──> %d rounds are done: %s", self.progress.round, self._folder.folder.path)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the requests of the next round, to the nodes of the clients that our stream selects."""
        self._began = time.perf_counter()
        present = self._nodes.present(grid, at_least=self.settings.min_available_nodes)
        round = self.progress.round + 1
        assignments = self._planner.plan(round)
        clients = [assignment.client for assignment in assignments]
        number = self._folder.next_number(self._collection.number)
        self._collection = Collection(number, clients=clients)
        self._sent = [
            self._request(MessageType.TRAIN, assignment, present[assignment.client], config=config)
            for assignment in assignments
            if assignment.client in present
        ]
        log(INFO, "Round %d asks %d of %d clients", round, len(self._sent), len(clients))
        return self._sent

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Apply the replies that count; the round itself counts once its model has come back to us."""
        num_asked = len(self._collection.missing)
        counting = self._counting(replies)
        visits = [visit for visit, _ in counting]
        if self._aggregator is not None:
            theta = self.progress.server.theta
            visits = aggregated_by(self._aggregator, counting, self._wire, server_round=server_round, theta=theta)
        with one_thread():
            progress, tally = run_round(
                self.algorithm,
                self.progress,
                visits,
                weight=lambda client: 1.0,
                registered=float(self.settings.num_clients),
            )
        for client in tally.refused:
            log(WARNING, "Client %d is refused in round %d: its upload is no use", client, progress.round)
        log(INFO, "Round %d applies %d of %d", progress.round, len(tally.clients), num_asked)
        self._closing = _Closing(progress, tally, self._began)
        arrays = self.format.model_arrays(progress.server.theta, progress.buffers.floats)
        metrics = MetricRecord({"num-applied": len(tally.clients), "num-refused": len(tally.refused)})
        if tally.client_loss is not None:
            metrics["train-loss"] = tally.client_loss
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Commit the round, with what a wrapper made of its model, and ask clients to evaluate it."""
        if self._closing is not None:
            self._commit(self._closing, arrays)
        self._closing = None
        if not self.settings.fraction_evaluate:
            return []
        present = self._nodes.present(grid, at_least=0)
        round = self.progress.round
        generator = stream(self.settings.seed, "evaluation", round)
        clients = Uniform(self.settings.fraction_evaluate).select(round, devices=self._devices, generator=generator)
        assignments = [self._planner.assignment(round, int(client)) for client in clients]
        return [
            self._request(MessageType.EVALUATE, assignment, present[assignment.client], config=config)
            for assignment in assignments
            if assignment.client in present
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics over the clients' examples, of theta and of the clients' own models."""
        found = [reply for reply in replies if not reply.has_error()]
        found.sort(key=lambda reply: reply.metadata.src_node_id)
        contents = [reply.content for reply in found]
        return aggregate_metricrecords(contents, "num-examples") if contents else None

    def _request(self, kind: str, asked: Assignment, node: int, *, config: ConfigRecord) -> Message:
        server, buffers = self.progress.server, self.progress.buffers
        applied = self._folder.applied(asked.client)
        facts: dict[str, Any] = {
            "server-round": asked.round,
            "client-id": asked.client,
            "epochs": asked.epochs,
            "number": self._collection.number,
            "applied": applied,
            "federation": self._folder.federation,
            "integers": buffers.integers.tolist(),
            **({} if asked.gradients is None else {"gradients": asked.gradients}),
        }
        content = RecordDict(
            {
                "arrays": self._wire.pack_download(Payload(self.algorithm.download(server), buffers.floats)),
                "config": ConfigRecord({**config, **facts}),
            }
        )
        if kind == MessageType.TRAIN and applied == NONE and self.algorithm.newcomer == "initial":
            content["initial"] = self.format.model_arrays(self._folder.initial, buffers.floats)
        return Message(content, node, kind, ttl=self.settings.round_timeout, group_id=str(asked.round))

    def _counting(self, replies: Iterable[Message]) -> list[tuple[ClientResult, Message]]:
        """Return the visits whose replies count, in rising order of their clients."""
        found = []
        for message in replies:
            if message.has_error():
                client = self._nodes.asked_of(self._sent, message)
                log(WARNING, "Client %s failed: %s", client, reason(message))
                continue
            try:
                visit = self._visit(message)
            except (KeyError, TypeError, ValueError) as error:
                log(WARNING, "Node %d sent what is no reply: %r", message.metadata.src_node_id, error)
                continue
            if self._collection.counts(reply_of(message)):
                found.append((visit, message))
        return sorted(found, key=lambda pair: pair[0].client)

    def _visit(self, message: Message) -> ClientResult:
        return visit_of(
            message,
            self._wire,
            theta=self.progress.server.theta,
            buffers=self.progress.buffers,
            newcomer=self._folder.applied(reply_of(message).client) == NONE,
        )

    def _commit(self, closing: _Closing, arrays: ArrayRecord) -> None:
        progress, tally, began = closing
        if isinstance(self._wire, ModelWire):
            # A wrapper may have added noise to the model since we returned it: what counts is what it made of it.
            theta, floats = self.format.read_model(arrays)
            buffers = progress.buffers._replace(floats=floats)
            progress = progress._replace(server=progress.server._replace(theta=theta), buffers=buffers)
        lost = self._collection.missing
        self.scores = self._evaluated(progress)
        seconds = time.perf_counter() - began
        record = Record.of(progress.round, tally, self.scores, seconds=seconds, lost=lost)
        self._model.load(progress.server.theta)
        self._model.load_buffers(progress.buffers)
        self._folder.commit(progress, number=self._collection.number, record=record, module=self._model.module)
        self.progress = progress

    def _evaluated(self, progress: ServerCheckpoint) -> dict[str, float]:
        return {} if self._evaluation is None else self._evaluation(progress.server.theta, progress.buffers)
