"""A federated run, round by round, on objects rather than names."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedadmm.config.certificate import CertificateSettings
from fedadmm.config.compatibility import check_clock, check_model, check_rules
from fedadmm.config.experiment import Weighting
from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.engine import Engine
from fedadmm.core.errors import InputError
from fedadmm.core.messages import num_bytes
from fedadmm.core.participation import Devices, ParticipationRule, participation_from
from fedadmm.core.round import Assignment, ServerCheckpoint, run_round
from fedadmm.core.store import StateTypes, Store, state_types
from fedadmm.data.federated import FederatedData
from fedadmm.engine import EngineName, choose, make_engine
from fedadmm.engine.planner import Planner, Plans
from fedadmm.engine.shared import probe_upload
from fedadmm.engine.threads import one_thread
from fedadmm.network.network import make_network
from fedadmm.network.settings import Clock, Faults
from fedadmm.runs.certificate import Certifier, check_certifiable
from fedadmm.runs.clients import ClientScores, client_weights, weight_in
from fedadmm.runs.metrics import MetricName, metric_named
from fedadmm.runs.records import Record
from fedadmm.runs.status import has_diverged
from fedadmm.runs.tasks import make_task
from fedadmm.state.memory import MemoryStore
from fedadmm.training.evaluation import Loss, Metric
from fedadmm.training.flat import independent_copy
from fedadmm.training.local import LocalTraining
from fedadmm.training.models import ModelFunction
from fedadmm.training.task import LearningTask

OpenStore = Callable[[StateTypes, Vector], Store]


class Simulation:
    """A run in progress: `advance()` plays one round and returns its record."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any, Any],
        *,
        model: str | nn.Module | ModelFunction,
        data: FederatedData,
        local: LocalTraining,
        participation: ParticipationRule,
        seed: int,
        weighting: Weighting = "equal",
        loss: Loss = functional.cross_entropy,
        l2: float = 0.0,
        metrics: Mapping[str, Metric] | None = None,
        metric: MetricName = "accuracy",
        devices: Mapping[str, Sequence[float]] | None = None,
        device: str | torch.device = "cpu",
        engine: EngineName = "workers",
        workers: int | None = None,
        faults: Faults | None = None,
        certificate: CertificateSettings | None = None,
        clock: Clock | None = None,
        open_store: OpenStore | None = None,
    ) -> None:
        self.algorithm, self._data, self._seed = algorithm, data, seed
        facts = {"num_examples": data.num_examples, **{k: np.asarray(v) for k, v in (devices or {}).items()}}
        devices_known = Devices(data.num_clients, facts)
        rule = participation_from(participation)
        check_rules(algorithm, participation=rule, local=local, devices=devices_known, faults=faults, engine=engine)
        planner = Planner(algorithm, participation=rule, local=local, devices=devices_known, seed=seed)
        self.weights = weights = client_weights(weighting, data)
        self._weight = partial(weight_in, weights)
        self._registered = float(data.num_clients if weights is None else weights.sum())
        with one_thread():
            self._task = make_task(
                model, data, local=local, loss=loss, l2=l2, metrics=metrics, seed=seed, device=device
            )
            check_model(algorithm, self._task)
            self.engine = choose(engine, algorithm, self._task)
            initial = self._task.model.weights.clone()
            server = algorithm.init_server(initial)
            upload = probe_upload(algorithm, algorithm.download(server), initial)
            self.optimum = self._task.optimum(weights) if metric_named(metric).needs_optimum else None
        begin = ServerCheckpoint(0, server, self._task.model.buffers(), 0.0)
        if clock is not None:
            check_clock(clock, algorithm, faults=faults, engine=engine)
        download, buffers = num_bytes(algorithm.download(server)), num_bytes(begin.buffers)
        network = make_network(
            clock,
            faults,
            seed=seed,
            num_examples=data.num_examples,
            bytes_down=download + buffers,
            bytes_up=num_bytes(upload) + buffers,
            participation=rule,
            assign=planner.assignment,
            least_epochs=local.least_epochs,
        )
        self._planner: Plans = network.schedule or planner
        types = state_types(algorithm)
        if certificate is not None:
            check_certifiable(certificate, algorithm, kind=types.client, num_clients=data.num_clients)
        # Last: a mistake in the settings must be found before anything is written.
        self._store = open_store(types, initial) if open_store is not None else MemoryStore()
        self.progress = self._store.progress() or begin
        self.history = [Record.from_json(table) for table in self._store.records()]
        made = make_engine(
            self.engine,
            algorithm,
            self._task,
            self._store,
            initial=initial,
            weight=self._weight,
            num_workers=workers,
            each_upload=network.needs_each_upload,
        )
        self._engine: Engine = network.around(
            made,
            algorithm,
            seconds=seconds_so_far(self.history),
            applied={client: record.round for record in self.history for client in record.clients},
            kept={0: begin, **self._store.kept()},
        )
        self._certifier = None if certificate is None else self._certifier_by(certificate, initial)
        self.num_parameters = initial.numel()

    def _certifier_by(self, settings: CertificateSettings, initial: Vector) -> Certifier:
        return Certifier(
            settings,
            self.algorithm,
            self._task,
            self._store,
            initial=initial,
            weight=self._weight,
            registered=self._registered,
            seed=self._seed,
        )

    @property
    def theta(self) -> Vector:
        """The server's model as a flat vector."""
        theta: Vector = self.progress.server.theta
        return theta

    @property
    def task(self) -> LearningTask:
        """The clients' problems."""
        return self._task

    @property
    def diverged(self) -> bool:
        """Whether the last round refused every client."""
        return has_diverged(self.history)

    def close(self) -> None:
        """End what the engine started; the result stays readable."""
        self._engine.close()

    def advance(self) -> Record:
        """Play the next round, commit it, and return its record."""
        began = time.perf_counter()
        number = self.progress.round + 1
        assignments = self._planner.plan(number, informed=self.history[-1].clients if self.history else None)
        with one_thread():
            results = self._engine.run(
                self.algorithm.download(self.progress.server), buffers=self.progress.buffers, assignments=assignments
            )
            progress, tally = run_round(
                self.algorithm, self.progress, results, weight=self._weight, registered=self._registered
            )
        scores = self._scores(progress)
        if self._certifier is not None:
            with one_thread():
                scores |= self._certifier.numbers(before=self.progress, after=progress, history=self.history)
        heard = {*tally.clients, *tally.refused}
        lost = tuple(asked.client for asked in assignments if asked.sends and asked.client not in heard)
        took = self._engine.took
        record = Record.of(number, tally, scores, seconds=time.perf_counter() - began, lost=lost, took=took)
        counted = sorted(tally.clients + tally.silent)
        self._store.commit(progress, clients=counted, record=record.to_json(), keep=took.in_use)
        self._store.drop(number, [client for client in lost if client not in tally.silent])
        self.progress = progress
        self.history.append(record)
        return record

    def evaluate(self) -> dict[str, float]:
        """Return the metrics of the server's model on the test examples."""
        return self._scores(self.progress)

    def _scores(self, progress: ServerCheckpoint) -> dict[str, float]:
        with one_thread():
            scores = self._engine.evaluate(self.algorithm.download(progress.server), buffers=progress.buffers)
        if self.optimum is not None:
            scores["distance"] = self.optimum.distance(progress.server.theta)
        return scores

    def assignments(self, round: int) -> list[Assignment]:
        """Return who takes part in a round and what each does, without playing the rounds before it."""
        return self._planner.plan(round)

    def model(self) -> nn.Module:
        """Return a copy of the network with the server's weights and buffers."""
        self._task.model.load(self.theta)
        self._task.model.load_buffers(self.progress.buffers)
        return independent_copy(self._task.model.module)

    def evaluate_clients(self, metric: str = "accuracy", *, model: Literal["theta", "own"] = "theta") -> ClientScores:
        """Return a metric on every client's own examples: of the server's model, or of each client's own.

        Who has no model of its own, as it never took part or as the method keeps none, uses the server's.
        """
        if model not in ("theta", "own"):
            raise InputError(f'model={model!r} is unknown; use "theta" or "own"')
        with one_thread():
            scores = [
                self._task.evaluate_client(
                    client, self.theta if model == "theta" else self.own_model(client), buffers=self.progress.buffers
                )[metric]
                for client in range(self._data.num_clients)
            ]
        return ClientScores(np.array(scores))

    def own_model(self, client: int) -> Vector:
        """Return a client's own model as a flat vector; the server's if it has none."""
        state = self._store.get(client)
        own = None if state is None else self.algorithm.own_model(state)
        return self.theta if own is None else own


def seconds_so_far(history: Sequence[Record]) -> float:
    """Return the simulated seconds that some rounds took, added up one round after the other."""
    seconds = 0.0
    for record in history:  # not sum(), which rounds otherwise
        seconds += record.simulated_seconds or 0.0
    return seconds
