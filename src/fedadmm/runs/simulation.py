"""A federated run, round by round."""

import time
from collections.abc import Callable, Collection, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import numpy as np
from torch import nn

from fedadmm.config.compatibility import options_from
from fedadmm.config.experiment import Experiment
from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.engine import Engine, StateTypes, Store
from fedadmm.core.errors import InputError
from fedadmm.core.metrics import DISTANCE, lower_is_better
from fedadmm.core.optional import HasPersonalModel, trait
from fedadmm.core.round import Assignment, ServerCheckpoint, norm_limit, run_round
from fedadmm.core.state_parts import Personal, without_part
from fedadmm.core.transport import Transport
from fedadmm.engine.choice import make_engine
from fedadmm.engine.process import one_thread
from fedadmm.runs.assembly import Federation, assemble, federation_of
from fedadmm.runs.certificate import Certifier
from fedadmm.runs.client_scores import ClientScores, in_numbers
from fedadmm.runs.records import Record
from fedadmm.state.memory import MemoryStore
from fedadmm.training.flat import independent_copy
from fedadmm.training.task import LearningTask

OpenStore = Callable[[StateTypes, Vector], Store]  # given theta^0


class Simulation:
    """A run in progress: `advance()` plays one round and returns its record."""

    def __init__(self, algorithm: AnyAlgorithm, *, open_store: OpenStore | None = None, **options: Any) -> None:
        """Assemble a federation, and begin, or go on where its store has ended.

        options: those of `fedadmm.config.compatibility.Options`.
        open_store: called once nothing can be wrong with the options; the state is in memory without it.
        """
        federation = assemble(algorithm, options_from(options))
        store = MemoryStore() if open_store is None else open_store(federation.state_types, federation.initial)
        self._begin(federation, store)

    @classmethod
    def of(cls, federation: Federation, store: Store) -> Self:
        """Return the simulation of a federation that has been assembled, where its store has ended."""
        simulation = cls.__new__(cls)
        simulation._begin(federation, store)
        return simulation

    def _begin(self, federation: Federation, store: Store) -> None:
        self.federation, self.algorithm, self._store = federation, federation.algorithm, store
        self.engine, self.optimum, self.weights = federation.engine, federation.optimum, federation.weights
        self.checkpoint = store.checkpoint() or federation.begin
        self.history = [Record.from_json(table) for table in store.records()]
        self._engine = _started(federation, store, self.history)
        asked = federation.options.certificate
        self._certifier = None if asked is None else Certifier(asked, federation, store)

    @property
    def theta(self) -> Vector:
        """The server's model as a flat vector."""
        return self.algorithm.model(self.checkpoint.server)

    @property
    def task(self) -> LearningTask:
        """The clients' problems."""
        return self.federation.task

    @property
    def num_parameters(self) -> int:
        """The number of trainable parameters."""
        return self.task.num_parameters

    def close(self) -> None:
        """End what the engine started; the result stays readable."""
        self._engine.close()

    @property
    def progress(self) -> NoReturn:
        """Refuse the name that `checkpoint` had."""
        raise InputError("simulation.progress is now called simulation.checkpoint; change the name")

    def advance(self, *, last: bool = False) -> Record:
        """Play the next round, commit it, and return its record; the last one is evaluated in any case."""
        began = time.perf_counter()
        number = self.checkpoint.round + 1
        informed = self.history[-1].clients if self.history else None
        planned = self.federation.planner.plan(number, informed=informed, last_round=self._store.round_of)
        with one_thread():
            download, buffers = self.algorithm.download(self.checkpoint.server), self.checkpoint.buffers
            medians = (record.upload_norm for record in self.history)
            limit = norm_limit(self.federation.options.max_norm, theta=download.theta, medians=medians)
            transport, clip = self._mechanisms()
            assignments = [assignment._replace(max_norm=limit, clip=clip) for assignment in planned]
            results = self._engine.run(download, buffers=buffers, assignments=assignments)
            checkpoint, summary = run_round(
                self.algorithm,
                self.checkpoint,
                results,
                weight=self.weights,
                registered=self.weights.total,
                transport=transport,
                asked=[assignment.client for assignment in assignments if assignment.sends],
            )
        counted = sorted(summary.clients + summary.silent)
        due = last or number % (self.federation.options.evaluate_every or 1) == 0
        scores, of_clients = self._scores(checkpoint, counted) if due else ({}, {})
        if self._certifier is not None:
            with one_thread():
                scores |= self._certifier.numbers(before=self.checkpoint, after=checkpoint, history=self.history)
        heard = {*summary.clients, *summary.refused}
        lost = tuple(asked.client for asked in assignments if asked.sends and asked.client not in heard)
        took = self._engine.took
        seconds, quantiles = time.perf_counter() - began, {name: own.quantiles for name, own in of_clients.items()}
        more: dict[str, Any] = {"lost": lost, "took": took, "client_quantiles": quantiles}
        joined = tuple(client for client in counted if self.task.joins(client))
        record = Record.of(number, summary, scores, seconds=seconds, joined=joined, **more)
        self._store.commit(checkpoint, clients=counted, record=record.to_json(), keep=took.in_use)
        self.checkpoint = checkpoint
        self.history.append(record)
        self._store.drop(number, [client for client in lost if client not in summary.silent])
        return record

    def _mechanisms(self) -> tuple[Transport | None, float | None]:
        """Return what becomes of the uploads of the next round, and the norm to which they are asked to be clipped."""
        transport = self.federation.transport
        if transport is None or transport.private is None:
            return transport, None
        transport = transport.after(self.history[-1].metrics if self.history else {})
        assert transport.private is not None
        return transport, transport.private.asked_clip

    def evaluate(self) -> dict[str, float]:
        """Return the metrics of the server's model on the test examples, and on those held out of each client."""
        return self._scores(self.checkpoint)[0]

    def _scores(
        self, checkpoint: ServerCheckpoint, counted: Collection[int] = ()
    ) -> tuple[dict[str, float], dict[str, ClientScores]]:
        """Return the numbers of a round, and those of each client; the states of `counted` are written ahead.

        Where no examples can be scored by the server's model alone, loss and metrics are means over the clients.
        """
        with one_thread():
            theta = self.algorithm.model(checkpoint.server)
            shown = self.algorithm.download(checkpoint.server)._replace(theta=theta)
            scores, found = self._engine.evaluate(shown, buffers=checkpoint.buffers), []
            if self.task.held_out is not None:

                def personal_of(client: int) -> Personal | None:
                    return self._personal_parts(client, round=checkpoint.round if client in counted else None)

                clients, buffers = range(self.task.data.num_clients), checkpoint.buffers
                found = self._engine.evaluate_clients(shown, buffers=buffers, clients=clients, personal_of=personal_of)
        if self.optimum is not None:
            scores[DISTANCE.name] = self.optimum.distance(theta)
        of_clients = self._by_metric(found)
        means = {} if self.task.num_parts else {name: own.mean for name, own in of_clients.items()}
        return scores | means | in_numbers(of_clients), of_clients

    def assignments(self, round: int) -> list[Assignment]:
        """Return who takes part in a round and what each does, without playing the rounds before it."""
        return self.federation.planner.plan(round)

    def model(self) -> nn.Module:
        """Return a copy of the network with the server's weights and buffers; what clients keep is as it began."""
        return self._network(self.theta, None)

    def client_model(self, client: int) -> nn.Module:
        """Return a copy of the network as a client has it: the server's weights, and the parts that it keeps."""
        self._check_client(client)
        return self._network(self.theta, self._personal_parts(client))

    def _check_client(self, client: int) -> None:
        number = self.task.data.num_clients
        if isinstance(client, bool) or not isinstance(client, Integral) or not 0 <= client < number:
            raise InputError(f"there is no client {client!r}; use a number from 0 to {number - 1}")

    def _network(self, weights: Vector, personal: Personal | None) -> nn.Module:
        self.task.model.load(weights)
        self.task.model.load_buffers(self.checkpoint.buffers)
        self.task.load_personal(personal)
        return independent_copy(self.task.model.module)

    def evaluate_clients(self, metric: str | None = None, *, model: Literal["theta", "own"] = "theta") -> ClientScores:
        """Return a metric on every client's own examples: of the server's model, or of each client's own.

        metric: by default what the run is judged by, else the accuracy, or the loss where there is only that.

        The examples are those held out where there are such (data.client_test), else those that it trains on.
        Who has no model of its own, as it never took part or as the method keeps none, uses the server's.
        With either, a client has the parts that it keeps (model.personal).
        """
        if model not in ("theta", "own"):
            raise InputError(f'model={model!r} is unknown; use "theta" or "own"')
        of_each, buffers = [], self.checkpoint.buffers
        with one_thread():
            for client in range(self.task.data.num_clients):
                weights = self.theta if model == "theta" else self.personal_model(client)
                parts = self._personal_parts(client)
                of_each.append(self.task.evaluate_client(client, weights, buffers=buffers, personal=parts))
        scores = self._by_metric(of_each)
        asked = [metric] if metric is not None else [self.federation.options.metric, "accuracy", "loss"]
        found = next((name for name in asked if name in scores), None)
        if not scores:
            raise InputError(
                "no client has examples to be scored on; give data.client_test, a share that each holds out"
            )
        if found is None:
            raise InputError(f"metric={metric!r} is unknown; use one of {', '.join(scores)}")
        return scores[found]

    def _by_metric(self, found: Sequence[dict[str, float]]) -> dict[str, ClientScores]:
        """Return what was found of each client, metric by metric."""
        names = next((own for own in found if own), {})
        columns = {name: np.array([own.get(name, np.nan) for own in found]) for name in names}
        options = self.federation.options
        given = {} if options.metric is None else {options.metric: options.direction}
        return {
            name: ClientScores(values, lower_is_better=lower_is_better(name, given.get(name)) or False)
            for name, values in columns.items()
        }

    def personal_model(self, client: int) -> Vector:
        """Return a client's own model as a flat vector; the server's if it has none."""
        self._check_client(client)
        state, personal = self._store.get(client), trait(self.algorithm, HasPersonalModel)
        return self.theta if state is None or personal is None else personal.personal_model(state)

    def _personal_parts(self, client: int, *, round: int | None = None) -> Personal | None:
        """Return the parts that a client keeps, as written ahead for a round if one is given; None: as they began."""
        if self.task.personal is None:
            return None
        state = self._store.get(client) if round is None else self._store.staged(round, client)
        return None if state is None else without_part(state, Personal)[1]


def simulation_of(experiment: Experiment, *, data_dir: Path | None = None, store: Store | None = None) -> Simulation:
    """Return the simulation that an experiment describes, with its state in memory if not in a store."""
    return Simulation.of(federation_of(experiment, data_dir=data_dir), MemoryStore() if store is None else store)


def _started(federation: Federation, store: Store, history: Sequence[Record]) -> Engine:
    """Return the engine of a federation, with the simulated network around it, where the rounds so far have ended."""
    algorithm, task, network = federation.algorithm, federation.task, federation.network
    initial, weight, num = federation.initial, federation.weights, federation.options.workers
    each = network.needs_each_upload
    more: dict[str, Any] = {"num_workers": num, "each_upload": each, "transport": federation.transport}
    engine = make_engine(federation.engine, algorithm, task, store, initial=initial, weight=weight, **more)
    seconds = 0.0
    for record in history:  # not sum(), which rounds otherwise than one round after the other
        seconds += record.simulated_seconds or 0.0
    applied = {client: record.round for record in history for client in record.clients}
    kept = {0: federation.begin, **store.older_checkpoints()}
    return network.around(engine, algorithm, seconds=seconds, applied=applied, kept=kept)
