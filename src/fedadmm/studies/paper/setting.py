"""Which methods of the paper run in which settings: the federation, the network and the local work of a column."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from fedadmm.config.algorithm_table import algorithm_from_table
from fedadmm.config.experiment import Experiment
from fedadmm.config.tables import DataSettings, ModelSettings
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.optional import GradientsOnly, trait
from fedadmm.core.per_client import Stragglers
from fedadmm.studies.paper.study import PaperRun, Size, published, table_of
from fedadmm.training.local import LocalTraining

ROUNDS = 100
UNTUNED_RATE = 0.1  # what a method gets before its own is found; the paper's fixed one where nothing is tuned
PARTITIONS = {"iid": "iid", "noniid": "shards", "imbalanced": "imbalanced"}
NETWORKS = {"mnist": "cnn1", "fmnist": "cnn1", "cifar10": "cnn2"}
CLIP = 10.0  # the largest norm of a local gradient, as in FedDyn's published code; FedSGD takes no local step
TARGETS = {"mnist": 0.97, "fmnist": 0.8, "cifar10": 0.45}


class PaperMethod(NamedTuple):
    """A row of methods.toml."""

    algorithm: AnyAlgorithm
    epochs: Literal["1..E", "E"] = "1..E"
    num_epochs: int | None = None
    rounds: int = 1
    participation: float = 0.1
    tuned_as: str | None = None


METHODS = {
    label: PaperMethod(**table | {"algorithm": algorithm_from_table(table["algorithm"])})
    for label, table in table_of("methods.toml").items()
}


@dataclass(frozen=True)
class Setting:
    """Two shards of sorted data a client where it is not IID, a tenth of the clients in a round, equal weights."""

    dataset: str
    clients: int
    distribution: Literal["iid", "noniid", "imbalanced"]
    epochs: int
    batch_size: int | Literal["full"]
    stragglers: float = 0.0  # the share of the clients that draw their epochs from 1..E, while the others do E
    small_of: "Setting | None" = None  # the paper's setting, if this is the small version of one

    @property
    def network(self) -> str:
        """The paper's for this dataset; an mlp where it is small."""
        return NETWORKS[self.dataset] if self.small_of is None else "mlp"

    @property
    def name(self) -> str:
        """What runs of this setting are called, whichever study they belong to."""
        work = f"E{self.epochs}-B{self.batch_size}" + (f"-stragglers{self.stragglers:g}" if self.stragglers else "")
        return f"{self.dataset}-{self.network}-{self.clients}-{self.distribution}-{work}"

    @property
    def column(self) -> str:
        """What the paper's tables call it."""
        slow = f"/stragglers_{self.stragglers:.0%}" if self.stragglers else ""
        return f"{self.dataset}_{self.clients}/{self.distribution}{slow}"

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
            small_of=self,
        )

    @property
    def is_published(self) -> bool:
        """Whether the paper's numbers are for this: not for a small version in which more than the network differs."""
        return self.small_of is None or replace(self, small_of=None) == self.small_of

    def experiment(self, label: str) -> Experiment:
        """Return the experiment of a method in this setting; its learning rate is still to be tuned."""
        method = METHODS[label]
        clip = None if trait(method.algorithm, GradientsOnly) else CLIP
        epochs: int | str | Stragglers = self.epochs if method.epochs == "E" else f"1..{self.epochs}"
        if self.stragglers:
            epochs = Stragglers(share=self.stragglers, epochs=f"1..{self.epochs}", others=self.epochs)
        return Experiment(
            name=self.name,
            label=label,
            rounds=ROUNDS * method.rounds,
            target=TARGETS[self.dataset],
            stop_at_target=method.rounds > 1,
            participation=method.participation,
            algorithm=method.algorithm,
            model=ModelSettings(name=self.network),
            data=DataSettings(name=self.dataset, num_clients=self.clients, partition=PARTITIONS[self.distribution]),
            local=LocalTraining(epochs=epochs, batch_size=self.batch_size, learning_rate=UNTUNED_RATE, clip=clip),
        )


@dataclass(frozen=True)
class Design:
    """The methods and columns of a study, as in studies.toml."""

    methods: Sequence[str]
    columns: Sequence[Sequence[Any]]
    small_columns: int | None = None  # as many of them in the small size
    num_clients: Mapping[Size, Sequence[int]] = field(default_factory=dict)
    fixed: Sequence[str] | Mapping[Size, Sequence[str]] = ()
    printed: str | None = None
    patience: int | None = None  # if given, runs in the paper's size end at the target, or with this patience

    def runs(self, size: Size) -> Iterator[PaperRun]:
        """Yield a run of each method in each column, with what the paper prints for it."""
        fixed = self.fixed.get(size, ()) if isinstance(self.fixed, Mapping) else self.fixed
        for number, column in enumerate(self.columns[: self.small_columns if size == "small" else None]):
            tuned = Setting(*column).at(size)
            numbers = published(self.printed) if self.printed is not None and tuned.is_published else {}
            for clients in self.num_clients.get(size, [tuned.clients]):
                for label in self.methods:
                    method = METHODS[label]
                    setting = replace(tuned, clients=clients, epochs=method.num_epochs or tuned.epochs)
                    tuned_as = replace(tuned, stragglers=0.0).experiment(method.tuned_as or label)
                    found = {what: rows[label][number] for what, rows in numbers.items() if label in rows}
                    source, experiment = None if label in fixed else tuned_as, setting.experiment(label)
                    if self.patience is not None and size == "paper":
                        experiment = experiment.replace(stop_at_target=True, patience=self.patience)
                    yield PaperRun(setting.column, experiment, source, **found)
