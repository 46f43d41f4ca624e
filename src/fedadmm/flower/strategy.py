"""Any Algorithm of ours as a Flower strategy: an update counts exactly once, whatever becomes of nodes and messages.

Flower calls four methods in each round:

    configure_train      asks the selected clients that are connected
    aggregate_train      applies the replies that count, and returns the new model
    configure_evaluate   commits the round with the model that Flower hands back, and asks clients to evaluate it
    aggregate_evaluate   averages their scores

Why does a round commit in configure_evaluate? A wrapper of Flower's, such as differential privacy, changes the model
that aggregate_train returned, and what it made of it is what counts. configure_evaluate is the first call that shows
us that model, and the last before clients act on it. A server that is killed before has not played the round: when the
clients are asked again, they drop what they computed for it (core/delivery.py).
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from logging import INFO, WARNING
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedadmm.config.algorithm_table import with_seed
from fedadmm.config.privacy_rules import check_buffers
from fedadmm.core.algorithm import Vector
from fedadmm.core.delivery import NONE, Collection
from fedadmm.core.errors import InputError
from fedadmm.core.participation import Devices, Participation, Uniform
from fedadmm.core.round import Buffers, ServerCheckpoint, norm_limit, run_round
from fedadmm.core.seeds import stream
from fedadmm.engine.planner import Planner
from fedadmm.engine.process import one_thread
from fedadmm.flower.client_nodes import ClientNodes
from fedadmm.flower.evaluation import NodeEvaluation
from fedadmm.flower.messages import aggregated_by
from fedadmm.flower.open_round import Expected, OpenRound
from fedadmm.flower.requests import Requests
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.settings import FederationSettings
from fedadmm.flower.unfinished import Release
from fedadmm.flower.wire import WIRES, ModelWire
from fedadmm.runs.records import Record
from fedadmm.training.flat import FlatModel
from fedadmm.uploads.privacy import PrivateSums, private_sums, sampled
from fedadmm.uploads.secret_draws import DrawnSecretly

Evaluation = Callable[[Vector, Buffers], dict[str, float]]


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
        folder: ServerFolder,
        evaluation: Evaluation | None = None,
        aggregator: Strategy | None = None,
    ) -> None:
        self.settings, self.algorithm = settings, with_seed(settings.algorithm, settings.seed)
        self._model, self._folder, self._aggregator = model, folder, aggregator
        self._evaluation = evaluation
        same: dict[str, Any] = {"seed": settings.seed, "num_clients": settings.num_clients}
        self.wire = WIRES[settings.wire](self.algorithm, model, settings.uploads, **same)
        assert aggregator is None or isinstance(self.wire, ModelWire), 'an aggregator takes models: wire="model"'
        if aggregator is not None and settings.robust is not None:
            raise InputError(
                "an aggregator of Flower's takes the place of the mean, and so does robust; use one of them"
            )
        participation: Participation = Uniform(settings.fraction_train)
        self._private: PrivateSums | None = None
        if settings.privacy is not None:
            check_buffers(model)
            rule, like = sampled(settings.privacy, participation), self.wire.upload
            about: dict[str, Any] = {"num_clients": settings.num_clients, "like": like}
            self._private = private_sums(settings.privacy, participation=rule, seed=None, **about)
            participation = DrawnSecretly(rule)
        participation.check(settings.num_clients)
        settings.local.check(settings.num_clients)
        devices, seed = Devices(settings.num_clients), settings.seed
        about = {"local": settings.local, "devices": devices, "seed": seed}
        self._planner = Planner(self.algorithm, participation=participation, **about)
        self._nodes = ClientNodes(settings, folder=folder, model=self.wire.description)
        self._requests = Requests(self.algorithm, self.wire, folder, settings.round_timeout)
        self._node_evaluation = NodeEvaluation(settings, self._planner, self._requests)
        self.checkpoint = folder.store.checkpoint() or ServerCheckpoint(
            0, self.algorithm.init_server(folder.store.initial()), model.buffers(), 0.0
        )
        records = folder.records()
        self._medians = [record.upload_norm for record in records]
        self._released = records[-1].metrics if records else {}  # by the last round
        self.scores = self._evaluated(self.checkpoint)
        self._round = OpenRound(Collection(NONE, clients=()), [], 0.0)

    def close(self) -> None:
        """Let go of the server's folder."""
        self._folder.close()

    @property
    def arrays(self) -> ArrayRecord:
        """The server's model as Flower users know it."""
        return self._model_arrays(self.checkpoint)

    @property
    def rounds_left(self) -> int:
        """The number of rounds that are left to play, and that the privacy budget allows."""
        done, rounds = self.checkpoint.round, self.settings.num_server_rounds
        if self._private is not None and self._private.budget is not None:
            allowed = self._private.accountant.rounds_within(self._private.budget, most=rounds)
            if allowed < rounds:
                log(WARNING, "The run ends after round %d: one more would cost more than privacy.epsilon", allowed)
            rounds = allowed
        return max(0, rounds - done)

    def summary(self) -> None:
        """Log what is run."""
        if self._private is not None:
            log(INFO, "\t├──> noise %g x clip, %s", self._private.accountant.noise, self.settings.privacy)
            if self.settings.fraction_evaluate:
                log(WARNING, "Scores on the nodes' own examples are outside of privacy; fraction-evaluate=0 has none")
        log(INFO, "\t├──> %s", self.algorithm)
        log(INFO, "\t├──> %s, wire %s", self.settings.local, self.settings.wire)
        log(INFO, "\t└──> %d rounds are done: %s", self.checkpoint.round, self._folder.folder.path)

    def verify(self, grid: Grid) -> None:
        """Compare what the connected clients keep with what was applied of them; who is out of step ends the run."""
        self._nodes.verify(grid)

    def check_applied(self, *, since: int) -> None:
        """Raise an error if no update was applied since a round; with [privacy] nobody is told."""
        if self._private is None:
            self._folder.check_applied(since=since)

    def roll_back(self, grid: Grid) -> None:
        """Go back to the checkpoint of a round (rollback-to), if the clients can follow."""
        self._nodes.check_rollback(grid, self.settings.rollback_to, force=self.settings.rollback_force)
        before = self.checkpoint.round
        self._folder.roll_back(self.settings.rollback_to)
        checkpoint = self._folder.store.checkpoint()
        assert checkpoint is not None
        self.checkpoint = checkpoint
        self._load(checkpoint)
        self._folder.write_model(checkpoint.round, self._model)
        log(WARNING, "Rolled back from round %d to round %d", before, checkpoint.round)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the requests of the next round, to the nodes of the clients that our stream selects."""
        began = time.perf_counter()
        timeout, left = self.settings.round_timeout, OpenRound.left_by_another(self._folder, began=began)
        if left is not None:  # a server that was killed; nobody is asked to train for that round again
            self._round = left
            left.go_on(grid, self._nodes, self._folder, timeout=timeout)
            return []
        connected = self._nodes.enough(grid)
        planned = self._planner.plan(self.checkpoint.round + 1, last_round=self._folder.last_round)
        private = self._mechanism()
        clip = None if private is None else private.asked_clip
        assignments = [assignment._replace(clip=clip) for assignment in planned]
        replies = Collection(self._folder.new_number(), clients=[assignment.client for assignment in assignments])
        self._round = OpenRound(replies, [], began, selected=replies.missing)
        if self.settings.secure is not None:
            order = stream(self.settings.seed, "secure neighbours", self.checkpoint.round + 1)
            about: dict[str, Any] = {"round": self.checkpoint.round + 1, "timeout": timeout, "generator": order}
            connected = self._round.agreed(self.settings.secure, connected, grid, self._folder, **about)
        about = {"round": self._round, "checkpoint": self.checkpoint}
        self._round.requests = self._requests.messages(MessageType.TRAIN, assignments, connected, config, **about)
        num_asked, num_selected = len(self._round.requests), len(assignments)
        log(INFO, "Round %d asks %d of %d clients", self.checkpoint.round + 1, num_asked, num_selected)
        return [message for message, _ in self._round.requests]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Apply the replies that count, and return the new model; the round is committed when that comes back."""
        if self._round.applied is not None:  # by the server that was killed
            return self._made()
        private, expected = self._mechanism(), self._expected()
        transport, sent, largest = self.wire.transport, expected.theta, expected.largest
        if private is not None and transport is not None:
            transport = replace(transport, private=private)
        found = self._round.updates(replies, self._folder, expected)
        results = [result for result, _ in found]
        if self._aggregator is not None:
            assert isinstance(self.wire, ModelWire)
            results = aggregated_by(self._aggregator, found, self.wire, server_round=server_round, theta=sent)
        if self._round.secure is not None and transport is not None and self.wire.encoding is not None:
            results, mean = self._round.unmasked(results, self.wire.encoding, self._folder)
            transport = replace(transport, sums=lambda *_: mean)
        registered = float(self.settings.num_clients)
        with one_thread():
            checkpoint, summary = run_round(
                self.algorithm,
                self.checkpoint,
                results,
                weight=lambda client: 1.0,
                registered=registered,
                transport=transport,
                asked=[request.client for _, request in self._round.requests],
            )
        self._round.applied = (checkpoint, summary)
        if private is not None:  # before anything of it leaves
            number, selected, digests = self._round.replies.number, self._round.selected, self._round.digests
            self._folder.keep(Release(number, selected, checkpoint, summary, digests))
        allowed = f"{largest:g}, which {'max-norm' if private is None else 'max-norm or privacy.clip'} allows"
        self._round.tell(self._folder, checkpoint=checkpoint, summary=summary, allowed=allowed)
        return self._made()

    def _made(self) -> tuple[ArrayRecord, MetricRecord]:
        assert self._round.applied is not None
        checkpoint, summary = self._round.applied
        metrics = MetricRecord({"num-applied": len(summary.clients), "num-refused": len(summary.refused)})
        if summary.client_loss is not None:
            metrics["train-loss"] = summary.client_loss
        return self._model_arrays(checkpoint), metrics

    def sound(self, replies: Iterable[Message]) -> list[Message]:
        """Return the replies that may be shown to what goes around this strategy: of updates, those that are sound."""
        found = list(replies)
        updates = [reply for reply in found if reply.metadata.message_type == MessageType.TRAIN]
        return [reply for reply in found if reply not in updates] + self._round.sound(updates, self._expected())

    def _expected(self) -> Expected:
        """Return what the replies of the open round are compared with."""
        theta, private = self.algorithm.download(self.checkpoint.server).theta, self._mechanism()
        largest = norm_limit(self.settings.max_norm, theta=theta, medians=self._medians)
        largest = largest if private is None else min(largest, private.clip)
        return Expected(self.wire, self.checkpoint, theta, largest)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Commit the round with the model that Flower hands back, and return the requests to evaluate it."""
        self._commit(arrays)
        if not self.settings.fraction_evaluate or not self.settings.evaluates(self.checkpoint.round):
            return []
        connected, open = self._nodes.connected(grid), self._round
        return self._node_evaluation.messages(connected, config, round=open, checkpoint=self.checkpoint)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics over the clients' examples, of theta and of the clients' own models."""
        return self._node_evaluation.scores(replies)

    def _commit(self, arrays: ArrayRecord) -> None:
        """Make the round count, with these arrays as its model where models travel; the reason is at the top."""
        if self._round.applied is None:
            return
        checkpoint, summary = self._round.applied
        if isinstance(self.wire, ModelWire):
            theta, floats = self.wire.read_own_model(arrays)
            server, buffers = checkpoint.server._replace(theta=theta), checkpoint.buffers._replace(floats=floats)
            checkpoint = checkpoint._replace(server=server, buffers=buffers)
        self.scores = self._evaluated(checkpoint) if self.settings.evaluates(checkpoint.round) else {}
        heard = {*summary.clients, *summary.refused}  # in a void round nobody
        lost = tuple(client for client in self._round.selected if client not in heard)
        seconds = time.perf_counter() - self._round.began
        record = Record.of(checkpoint.round, summary, self.scores, seconds=seconds, lost=lost)
        self._load(checkpoint)
        number = self._round.replies.number
        digests = {client: digest for client, digest in self._round.digests.items() if client in record.clients}
        self._folder.commit(checkpoint, number=number, record=record, model=self._model, digests=digests)
        self.checkpoint, self._round.applied = checkpoint, None
        self._medians.append(record.upload_norm)
        self._released = record.metrics

    def _mechanism(self) -> PrivateSums | None:
        """Return what differential privacy does in the round that follows the checkpoint, None if there is none."""
        return None if self._private is None else self._private.after(self._released)

    def _load(self, checkpoint: ServerCheckpoint) -> None:
        self._model.load(self.algorithm.model(checkpoint.server))
        self._model.load_buffers(checkpoint.buffers)

    def _model_arrays(self, checkpoint: ServerCheckpoint) -> ArrayRecord:
        # Where models travel, a wrapper of Flower's may change the arrays, and what it made of them is theta.
        models_travel = isinstance(self.wire, ModelWire)
        theta = checkpoint.server.theta if models_travel else self.algorithm.model(checkpoint.server)
        return self.wire.model_arrays(theta, checkpoint.buffers.floats)

    def _evaluated(self, checkpoint: ServerCheckpoint) -> dict[str, float]:
        if self._evaluation is None:
            return {}
        return self._evaluation(self.algorithm.model(checkpoint.server), checkpoint.buffers)
