"""A federated run, round by round, on objects rather than names."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedadmm.config.certificate import CertificateSettings
from fedadmm.config.compatibility import check_model, check_rules
from fedadmm.config.experiment import Weighting
from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.participation import Devices, ParticipationRule, participation_from
from fedadmm.core.round import Assignment, ServerCheckpoint, run_round
from fedadmm.core.store import StateTypes, Store, state_types
from fedadmm.data.federated import FederatedData
from fedadmm.engine import Engine, EngineName, choose, make_engine
from fedadmm.engine.planner import Planner
from fedadmm.engine.shared import probe_upload
from fedadmm.engine.threads import one_thread
from fedadmm.network.clock import Clock
from fedadmm.network.faults import Faults, FaultyPost
from fedadmm.network.simulated_time import clockwork_of, rounds_on
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
        self._planner = Planner(algorithm, participation=rule, local=local, devices=devices_known, seed=seed)
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
        clockwork = clockwork_of(
            clock,
            algorithm,
            seed=seed,
            data=data,
            sent=(algorithm.download(server), upload, begin.buffers),
            participation=rule,
            assign=self._planner.assignment,
            local=local,
            faults=faults,
            engine=engine,
        )
        types = state_types(algorithm)
        if certificate is not None:
            check_certifiable(certificate, algorithm, kind=types.client, num_clients=data.num_clients)
        # Last: a mistake in the settings must be found before anything is written.
        self._store = open_store(types, initial) if open_store is not None else MemoryStore()
        self.progress = self._store.progress() or begin
        self.history = [Record.from_json(table) for table in self._store.records()]
        self._timed = rounds_on(clockwork, algorithm, self._store, begin=begin, history=self.history)
        self._post = None if faults is None else self._post_with(faults)
        self._engine: Engine = self._timed.on(
            make_engine(
                self.engine,
                algorithm,
                self._task,
                self._store,
                initial=initial,
                weight=self._weight,
                num_workers=workers,
                lossy=faults is not None or self._timed.one_by_one,
            )
        )
        self._certifier = None if certificate is None else self._certifier_by(certificate, initial)
        self.num_parameters = initial.numel()

    def _post_with(self, faults: Faults) -> FaultyPost:
        applied = {client: record.round for record in self.history for client in record.clients}
        alone = self.algorithm.silence is not None
        return FaultyPost(faults, seed=self._seed, applied=applied, go_on_alone=alone)

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
        asked = self._assignments(number, informed=self.history[-1].clients if self.history else None)
        senders = [assignment.client for assignment in asked if assignment.sends]
        reached = self._timed.in_time(asked)
        reached = reached if self._post is None else self._post.delivered(reached)
        with one_thread():
            visits = self._engine.visits(
                self.algorithm.download(self.progress.server), buffers=self.progress.buffers, assignments=reached
            )
            if self._post is not None:
                visits = self._post.collected(number, visits, clients=senders)
            visits = self._timed.watched(visits)
            progress, tally = run_round(
                self.algorithm, self.progress, visits, weight=self._weight, registered=self._registered
            )
        scores = self._scores(progress)
        if self._certifier is not None:
            with one_thread():
                scores |= self._certifier.numbers(before=self.progress, after=progress, history=self.history)
        heard = {*tally.clients, *tally.refused}
        lost = tuple(client for client in senders if client not in heard)
        took = self._timed.ended(all_came=not lost)
        record = Record.of(number, tally, scores, seconds=time.perf_counter() - began, lost=lost, took=took)
        counted = sorted(tally.clients + tally.silent)
        self._store.commit(progress, clients=counted, record=record.to_json(), keep=self._timed.under_way)
        if self._post is not None:
            self._post.applied(number, tally.clients)
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
        return self._assignments(round, informed=None)

    def _assignments(self, round: int, *, informed: Collection[int] | None) -> list[Assignment]:
        planned = self._timed.planned(round)
        return self._planner.plan(round, informed=informed) if planned is None else planned

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
