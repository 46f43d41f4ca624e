"""What a node does with a request: settle, work, write down, reply."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ConfigRecord, Context, MetricRecord, RecordDict
from torch import nn

from fedadmm.core.delivery import Request, answered, settled
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment, Buffers, visit_client
from fedadmm.core.seeds import torch_seed
from fedadmm.data.examples import Examples, as_examples
from fedadmm.engine.threads import one_thread
from fedadmm.flower.settings import FederationSettings, client_of
from fedadmm.flower.wire import MessageFormat, Payload, WrongFormatError, make_wire
from fedadmm.runs.folder import RunFolder
from fedadmm.runs.stored_model import write_model
from fedadmm.state.node import NodeStore, SavedState
from fedadmm.training.evaluation import Loss, Metric
from fedadmm.training.models import build
from fedadmm.training.task import LearningTask

ModelFunction = Callable[[], nn.Module]
DataFunction = Callable[[Context], Any]


class NodeData(NamedTuple):
    """The data of a federation as one node sees it: its own, whichever client it is."""

    examples: Examples
    test: Examples | None = None
    num_clients: int = 1

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
        self._settings, self._algorithm = settings, settings.algorithm
        self.client = client_of(context)
        self._folder = RunFolder(settings.client_folder(context))
        module = build(model, input_shape=(), num_classes=0, seed=torch_seed(settings.seed, "model"))
        self._task = LearningTask(
            module,
            NodeData(as_examples(data(context))),
            local=settings.local,
            loss=loss,
            metrics=metrics,
            seed=settings.seed,
        )
        self._format = MessageFormat(self._algorithm, self._task.model)
        self._wire = make_wire(settings.wire, self._format)

    def describe(self, content: RecordDict) -> RecordDict:
        """Say who this is and what its model looks like; a state folder of another federation is refused here."""
        with self._store(content.config_records["config"]):
            return RecordDict({"config": ConfigRecord({"client-id": self.client, "model": self._format.description})})

    def train(self, content: RecordDict) -> RecordDict:
        """Answer a request: the new state is on the disk before the reply leaves."""
        config = content.config_records["config"]
        request, assignment = self._request(config), self._assignment(config)
        with self._store(config) as store, one_thread():
            journal = store.journal()
            kept = store.get(settled(journal, request).acknowledged)
            download, buffers = self._download(content)
            visit, state = visit_client(
                self._algorithm,
                download,
                assignment,
                state=None if kept is None else kept.state,
                initial=self._initial(content, download),
                problem=self._task.problem(assignment, buffers=buffers),
            )
            effort = visit.effort
            arrays, residual = self._wire.pack_upload(
                Payload(visit.upload, effort.buffers.floats),
                theta=download.theta,
                residual=None if kept is None else kept.residual,
            )
            if visit.finite:
                store.write(answered(journal, request), pending=SavedState(state, residual))
        num_examples = 1 if self._settings.wire == "model" else len(self._task.data.client(0).targets)
        metrics: dict[str, Any] = {
            "num-examples": num_examples,
            "train-loss": effort.loss,
            "steps": effort.steps,
            "gradient-evaluations": effort.gradient_evaluations,
            "finite": int(visit.finite),
        }
        if effort.epsilon is not None:
            metrics["epsilon"] = effort.epsilon
        integers = effort.buffers.integers.tolist()
        books: dict[str, Any] = {"client-id": self.client, "number": request.number, "integers": integers}
        return RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics), "config": ConfigRecord(books)})

    def evaluate(self, content: RecordDict) -> RecordDict:
        """Evaluate theta and the client's own model on its examples, and write both to its folder."""
        config = content.config_records["config"]
        with self._store(config) as store, one_thread():
            kept = store.get(settled(store.journal(), self._request(config)).acknowledged)
            download, buffers = self._download(content)
            own = None if kept is None else self._algorithm.own_model(kept.state)
            models = {"": download.theta, "own-": download.theta if own is None else own}
            metrics: dict[str, float] = {}
            for prefix, weights in models.items():
                scores = self._task.evaluate_client(self.client, weights, buffers=buffers)
                metrics |= {f"{prefix}{name}": value for name, value in scores.items()}
                # evaluate_client has loaded the model.
                write_model(
                    self._folder,
                    self._task.model.module,
                    round=int(config["server-round"]),  # type: ignore[arg-type]
                    name=f"{prefix}model.safetensors",
                )
        num_examples = len(self._task.data.client(0).targets)
        return RecordDict({"metrics": MetricRecord({"num-examples": num_examples, **metrics})})

    def _store(self, config: ConfigRecord) -> NodeStore:
        return NodeStore(
            self._folder.state,
            client=self.client,
            client_type=self._format.client_type,
            identity={"federation": str(config["federation"])},
        )

    def _request(self, config: ConfigRecord) -> Request:
        client, number, applied = (int(config[key]) for key in ("client-id", "number", "applied"))  # type: ignore[arg-type]
        if client != self.client:
            raise InputError(
                f"this node is client {self.client}, and it is asked as client {client}; keep a node's client-id"
            )
        return Request(client, number, applied)

    def _assignment(self, config: ConfigRecord) -> Assignment:
        round, epochs = int(config["server-round"]), int(config["epochs"])  # type: ignore[arg-type]
        gradients = int(config["gradients"]) if "gradients" in config else None  # type: ignore[arg-type]
        return Assignment(self.client, round, epochs, gradients)

    def _download(self, content: RecordDict) -> tuple[Any, Buffers]:
        try:
            download, floats = self._wire.unpack_download(content.array_records["arrays"])
        except WrongFormatError as error:
            raise InputError(
                f"client {self.client} has another model than the server: {error}; install the same app"
            ) from None
        integers = torch.tensor(content.config_records["config"]["integers"], dtype=torch.int64)
        return download, Buffers(floats, integers)

    def _initial(self, content: RecordDict, download: Any) -> Any:
        """Return theta^0, which travels only to those who need it."""
        if "initial" not in content.array_records:
            return download.theta
        return self._format.read_model(content.array_records["initial"]).message
