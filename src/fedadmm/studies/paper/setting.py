"""A setting: the federation, the network and the local work that the methods of a column share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from fedadmm.algorithms import FedADMM, FedADMMReleased, FedAvg, FedDyn, FedProx, FedSGD, Scaffold
from fedadmm.config.experiment import DataSettings, Experiment, ModelSettings
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.studies.paper.study import PaperRun, Size
from fedadmm.training.local import LocalTraining

ROUNDS = 100
UNTUNED_RATE = 0.1  # what a method gets before its own is found; the paper's fixed one where nothing is tuned

Distribution = Literal["iid", "noniid", "imbalanced"]
PARTITIONS = {"iid": "iid", "noniid": "shards", "imbalanced": "imbalanced"}
NETWORKS = {"mnist": "cnn1", "fmnist": "cnn1", "cifar10": "cnn2"}
TARGETS = {"mnist": 0.97, "fmnist": 0.8, "cifar10": 0.45}


class PaperMethod(NamedTuple):
    """An algorithm, and whether its clients draw their epochs from 1..E or do exactly E."""

    algorithm: AnyAlgorithm
    epochs: Literal["1..E", "E"] = "1..E"
    rounds: int = 1  # times as many as the others get


ALGORITHM_1 = PaperMethod(FedADMM(rho=0.01, eta=1.0))
# FedADMM's first message is twice FedAvg's, so FedAvg with a server step of 2 stands beside it.
BASELINES = {
    "fedavg": PaperMethod(FedAvg(), "E"),
    "fedavg_2": PaperMethod(FedAvg(eta=2.0), "E"),
    "fedprox": PaperMethod(FedProx(rho=0.1)),
    "scaffold": PaperMethod(Scaffold(), "E"),
}
COMPARED = {"fedadmm": ALGORITHM_1, **BASELINES}
METHODS = {
    "fedadmm": ALGORITHM_1,
    "fedadmm_participation": PaperMethod(FedADMM(rho=0.01, eta="participation", newcomer="initial")),
    "fedadmm_seen": PaperMethod(FedADMM(rho=0.01, eta="seen")),
    "fedadmm_released": PaperMethod(FedADMMReleased()),
    "feddyn_seen": PaperMethod(FedDyn(rho=0.1, over="seen")),  # over "all" is FedDyn as published
    **BASELINES,
    "fedsgd": PaperMethod(FedSGD(), rounds=6),  # the paper gives it up to 600 rounds
}


@dataclass(frozen=True)
class Setting:
    """Two shards of sorted data a client where it is not IID, a tenth of the clients in a round, equal weights."""

    dataset: str
    clients: int
    distribution: Distribution
    epochs: int
    batch_size: int | Literal["full"]
    network: str | None = None  # None: the paper's for this dataset
    small_of: "Setting | None" = None  # the paper's setting, if this is the small version of one

    @property
    def name(self) -> str:
        """What runs of this setting are called, whichever study they belong to."""
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
            small_of=self,
        )

    @property
    def is_published(self) -> bool:
        """Whether the paper's numbers are for this: not for a small version in which more than the network differs."""
        paper = self.small_of
        return paper is None or replace(self, network=paper.network, small_of=None) == paper

    def experiment(self, label: str, method: PaperMethod) -> Experiment:
        """Return the experiment of a method in this setting; its learning rate is still to be tuned."""
        epochs = self.epochs if method.epochs == "E" else f"1..{self.epochs}"
        return Experiment(
            name=self.name,
            label=label,
            rounds=ROUNDS * method.rounds,
            target=TARGETS[self.dataset],
            stop_at_target=method.rounds > 1,
            participation=0.1,
            algorithm=method.algorithm,
            model=ModelSettings(name=self.network or NETWORKS[self.dataset]),
            data=DataSettings(name=self.dataset, num_clients=self.clients, partition=PARTITIONS[self.distribution]),
            local=LocalTraining(epochs=epochs, batch_size=self.batch_size, learning_rate=UNTUNED_RATE),
        )

    def runs(
        self,
        methods: Mapping[str, PaperMethod],
        *,
        printed: Mapping[str, Mapping[str, Any]] | None = None,
        tuned_in: "Setting | None" = None,
    ) -> list[PaperRun]:
        """Return a run of each method in this setting, tuned here or in another one.

        printed: the rounds and the accuracies that the paper prints, by label.
        """
        known = printed if printed is not None and self.is_published else {}
        return [
            PaperRun(
                self.column,
                self.experiment(label, method),
                (tuned_in or self).experiment(label, method),
                **{number: by_label.get(label) for number, by_label in known.items()},
            )
            for label, method in methods.items()
        ]
