"""The data of one machine of a federation, and the task that is made of it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedadmm.data.datasets import Dataset
from fedadmm.data.examples import Examples
from fedadmm.data.federated import chosen_of
from fedadmm.data.reading import Reader
from fedadmm.flower.settings import FederationSettings
from fedadmm.training.evaluation import Loss, Metric, accuracy
from fedadmm.training.models import ModelFunction, initial_model
from fedadmm.training.task import LearningTask

MakeTask = Callable[[FederationSettings, "OwnData"], LearningTask]


class OwnData(NamedTuple):
    """The data of a federation as one machine sees it: its own, whichever client it is."""

    examples: Examples
    test: Examples | None = None
    num_clients: int = 1
    num_classes: int = 0  # a node's model is a function of its own, which is not told
    held_out: "OwnData | None" = None  # what it is scored on, and does not train on
    reader: Reader | None = None  # where examples are rows that are read batch by batch

    @classmethod
    def of(cls, dataset: Dataset) -> "OwnData":
        """Return the training examples of a dataset as a machine's own."""
        return cls(dataset.train, reader=dataset.reader)

    @classmethod
    def split(cls, dataset: Dataset, settings: FederationSettings, *, client: int) -> "OwnData":
        """Return a node's data, with examples held out where that is asked for: those of the simulated client."""
        own, examples = cls.of(dataset), dataset.train
        if settings.client_test is None:
            return own
        held = torch.from_numpy(
            chosen_of(len(examples.targets), settings.client_test, client=client, seed=settings.seed)
        )
        train, test = (own._replace(examples=Examples(*(part[rows] for part in examples))) for rows in (~held, held))
        return train._replace(held_out=test if held.any() else None)

    @property
    def num_examples(self) -> npt.NDArray[np.int64]:
        """The number of examples."""
        return np.array([len(self.examples.targets)])

    def client(self, client: int) -> Examples:
        """Return the examples."""
        return self.examples


def task_maker(model: ModelFunction, loss: Loss, metrics: Mapping[str, Metric] | None) -> MakeTask:
    """Return what makes a task of a node's examples, or of those that the server evaluates theta on."""

    def make(settings: FederationSettings, data: OwnData) -> LearningTask:
        module = initial_model(model, seed=settings.seed)
        scores = {"accuracy": accuracy} if metrics is None else metrics
        same: dict[str, Any] = {"local": settings.local, "seed": settings.seed, "personal": settings.personal}
        return LearningTask(module, data, loss=loss, metrics=scores, **same)

    return make
