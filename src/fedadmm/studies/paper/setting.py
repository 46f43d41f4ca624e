"""A setting: the federation, the network and the local work that the methods of a column share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fedadmm.algorithms import FedADMM
from fedadmm.config.experiment import DataSettings, Experiment, ModelSettings
from fedadmm.studies.paper.methods import ALGORITHM_1, Method
from fedadmm.studies.paper.preset import Cell, Size
from fedadmm.training.local import LocalTraining

ROUNDS = 100
UNTUNED_RATE = 0.1  # what a method gets before its own is found; the paper's fixed one where nothing is tuned

Distribution = Literal["iid", "noniid", "imbalanced"]
PARTITIONS = {"iid": "iid", "noniid": "shards", "imbalanced": "imbalanced"}
NETWORKS = {"mnist": "cnn1", "fmnist": "cnn1", "cifar10": "cnn2"}
TARGETS = {"mnist": 0.97, "fmnist": 0.8, "cifar10": 0.45}


@dataclass(frozen=True)
class Setting:
    """Two shards of sorted data a client where it is not IID, a tenth of the clients in a round, equal weights."""

    dataset: str
    clients: int
    distribution: Distribution
    epochs: int
    batch_size: int | Literal["full"]
    network: str | None = None  # None: the paper's for this dataset

    @property
    def name(self) -> str:
        """What runs of this setting are called, whichever preset they belong to."""
        network = self.network or NETWORKS[self.dataset]
        return f"{self.dataset}-{network}-{self.clients}-{self.distribution}-E{self.epochs}-B{self.batch_size}"

    @property
    def column(self) -> str:
        """What the paper's tables call it."""
        return f"{self.dataset}_{self.clients}/{self.distribution}"

    def at(self, size: Size) -> "Setting":
        """Return the setting itself, or its small version: an mlp on grey images, fewer clients, fewer epochs."""
        if size == "paper":
            return self
        return replace(
            self,
            dataset="mnist" if self.dataset == "mnist" else "fmnist",
            clients=min(self.clients, 200),
            epochs=min(self.epochs, 5),
            batch_size=50 if self.batch_size == "full" else max(self.batch_size, 50),
            network="mlp",
        )

    def experiment(self, label: str, method: Method, *, rounds: int = ROUNDS) -> Experiment:
        """Return the experiment of a method in this setting; its learning rate is still to be tuned."""
        epochs = self.epochs if method.epochs == "E" else f"1..{self.epochs}"
        return Experiment(
            name=self.name,
            label=label,
            rounds=rounds * method.rounds,
            target=TARGETS[self.dataset],
            stop_at_target=method.rounds > 1,
            participation=0.1,
            algorithm=method.algorithm,
            model=ModelSettings(name=self.network or NETWORKS[self.dataset]),
            data=DataSettings(name=self.dataset, num_clients=self.clients, partition=PARTITIONS[self.distribution]),
            local=LocalTraining(epochs=epochs, batch_size=self.batch_size, learning_rate=UNTUNED_RATE),
        )

    def cells(
        self,
        methods: Mapping[str, Method],
        *,
        rounds: int = ROUNDS,
        published: Mapping[str, str] | None = None,
        tuned_in: "Setting | None" = None,
    ) -> list[Cell]:
        """Return a run of each method in this setting, tuned here or in another one."""
        return [
            Cell(
                self.column,
                self.experiment(label, method, rounds=rounds),
                (tuned_in or self).experiment(label, method),
                (published or {}).get(label),
            )
            for label, method in methods.items()
        ]

    def ablation(self, algorithms: Mapping[str, FedADMM]) -> list[Cell]:
        """Return a run of each form of FedADMM in this setting, at the learning rate found for Algorithm 1."""
        methods = {label: Method(algorithm) for label, algorithm in algorithms.items()}
        tuned = self.experiment("fedadmm", ALGORITHM_1)
        return [cell._replace(tuned_as=tuned) for cell in self.cells(methods)]
