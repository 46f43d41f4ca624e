"""An experiment is a frozen value that says everything about a run, its algorithm included; TOML in and out."""

import hashlib
import json
from dataclasses import fields, replace
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BeforeValidator, Field, PlainSerializer, field_validator, model_validator

from fedadmm.algorithms import ALGORITHMS, FastFedADMM
from fedadmm.core.algorithm import Algorithm, AnyAlgorithm
from fedadmm.core.engine import EngineName
from fedadmm.core.errors import OLD_WORDS, InputError, import_named, new_name
from fedadmm.core.files import parse_toml
from fedadmm.core.metrics import Direction, check_goal
from fedadmm.core.schedules import rate_from, to_plain
from fedadmm.core.settings import Count, NonNegative, Settings, count_or
from fedadmm.network.settings import Clock, Faults
from fedadmm.training.local import LocalTraining

Weighting = Literal["equal", "examples"]
# What does not change round t.
UNHASHED = (
    "name", "label", "rounds", "target", "direction", "stop_at_target", "patience", "evaluate_every", "engine",
    "workers", "certificate",
)  # fmt: skip


def algorithm_from_table(table: dict[str, Any]) -> AnyAlgorithm:
    """Return the algorithm that {name = "fedadmm", rho = 0.01, ...} describes."""
    arguments = dict(table)
    name = arguments.pop("name", None)
    if isinstance(name, str) and ":" in name:
        kind = import_named(name, what="algorithm")
        if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
            raise InputError(f"{name} is not an algorithm; name a class derived from fedadmm.Algorithm")
    elif isinstance(name, str) and name in ALGORITHMS:
        kind = ALGORITHMS[name]
    else:
        known = f"name={name!r} is unknown; use one of {', '.join(ALGORITHMS)}"
        raise InputError(new_name(str(name), ALGORITHMS) or known)
    if missing := getattr(kind, "__abstractmethods__", None):
        raise InputError(f"{name} does not define {', '.join(sorted(missing))}; an algorithm has these methods")
    defaults = {field.name: field.default for field in fields(kind)}
    for key, value in arguments.items():
        if key not in defaults:
            known = f"unknown key {key!r}; {name} has {', '.join(defaults) or 'no keys but its name'}"
            raise InputError(new_name(key, defaults) or known)
        nested = isinstance(value, dict) and isinstance(defaults[key], Algorithm)
        arguments[key] = algorithm_from_table(value) if nested else rate_from(key, value)
    return kind(**arguments)


def algorithm_to_table(algorithm: AnyAlgorithm) -> dict[str, Any]:
    """Return the table that describes an algorithm."""
    kind = type(algorithm)
    names = [name for name, known in ALGORITHMS.items() if known is kind]
    values = {field.name: getattr(algorithm, field.name) for field in fields(algorithm)}
    plain = {key: algorithm_to_table(v) if isinstance(v, Algorithm) else to_plain(v) for key, v in values.items()}
    return {"name": names[0] if names else f"{kind.__module__}:{kind.__qualname__}", **plain}


def with_seed(algorithm: AnyAlgorithm, seed: int) -> AnyAlgorithm:
    """Return an algorithm whose own `seed`, where it has one that is None, is the run's."""
    return replace(algorithm, seed=seed) if getattr(algorithm, "seed", seed) is None else algorithm


def _hashed_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return an algorithm's table with the words of 0.1.0 and no whole numbers: 1 and 1.0 are the same."""
    return {OLD_WORDS["algorithm"].get(key, key): _hashed(value) for key, value in table.items()}


def _hashed(value: Any) -> Any:
    if isinstance(value, dict) and "name" in value:
        return _hashed_table(value)
    if isinstance(value, str):
        return OLD_WORDS["algorithm"].get(value, value)
    return float(value) if type(value) is int else value


def _algorithm_from(value: Any) -> Any:
    if isinstance(value, str):
        raise InputError(f'algorithm={value!r} is not a table; write algorithm.name = "{value}"')
    return algorithm_from_table(value) if isinstance(value, dict) else value


AlgorithmSettings = Annotated[AnyAlgorithm, BeforeValidator(_algorithm_from), PlainSerializer(algorithm_to_table)]


class ModelSettings(Settings):
    """The network: one of ours or "package.module:function", its loss, and metrics beside the accuracy."""

    name: str = "mlp"
    options: dict[str, Any] = Field(default_factory=dict)  # further arguments of the model's function
    # "least_squares", a function of torch.nn.functional, or "package.module:function"
    loss: str = "cross_entropy"
    # A term l2/2 |w|^2 of every client's objective; unlike weight_decay, every gradient has it.
    l2: NonNegative | None = None
    metrics: dict[str, str] = Field(default_factory=dict)  # name = "package.module:function"
    # Parameters and buffers that each client keeps for itself, by patterns of their names, such as ["head.*"] for a
    # personal head (FedPer; FedRep with local.personal_epochs) or ["*.bn*"] for batch normalisation (FedBN). They are
    # part of the client's state, are never sent, and have no dual. Loss and metrics are then means over the clients,
    # each with its own parts, on examples held out (data.client_test). None: the whole model is shared.
    personal: tuple[str, ...] | None = None


class DataSettings(Settings):
    """The data and how it is dealt to clients."""

    name: str = "digits"
    num_clients: Count | None = None  # None: as many as the partition makes
    partition: str = "shards"
    shards_per_client: Count = 2  # for shards
    alpha: float = 0.5  # for dirichlet
    quantiles: Count | None = None  # of targets that are numbers, each of which is then dealt as a class
    normalisation: str | None = None
    validation: float | None = None  # share of the training examples that takes the place of the test examples
    # Share of each client's examples that it is scored on, and does not train on, such as 0.2. Records then have mean,
    # spread and worst decile over clients of loss and metrics. A client with one example trains on it.
    client_test: float | None = None

    positive: tuple[int, ...] | None = None  # classes that become class 1, all others class 0
    float_type: Literal["float32", "float64"] | None = None  # of inputs and model; None: the data's own
    options: dict[str, Any] = Field(default_factory=dict)  # of "quadratic": dimension, condition, heterogeneity


class StateSettings(Settings):
    """Where client states are kept, and how."""

    store: Literal["disk", "memory"] = "disk"  # a run whose state is in memory cannot be resumed
    float_type: Literal["float32", "bfloat16"] = "float32"  # bfloat16 halves the state, and rounds it
    durability: Literal["process", "power"] = "process"  # what a committed round survives the loss of


class CertificateSettings(Settings):
    """How often V^t is recorded, and over which clients; it costs one full gradient a client.

    every: 1 records every round, 10 rounds 1, 11, 21 and so on.
    clients: "all", or a number that is drawn anew each time: sums are then estimates.
    """

    every: Count = 1
    clients: Annotated[int | Literal["all"], count_or("all")] = "all"


class Experiment(Settings):
    """Everything that determines a run."""

    name: str = "run"
    label: str | None = None  # what a comparison calls it; the algorithm's name if None
    seed: int = 0
    rounds: Count = 60
    # What a run is judged by: "accuracy", "loss", "client_loss", "distance" to a convex optimum, or a name in
    # [model.metrics]. None: the test accuracy, or the loss where targets are no classes.
    metric: str | None = None
    direction: Direction | None = None  # what is better in a metric of the user's, if its name does not say it
    target: float | None = None  # value of the metric at which a run has arrived
    stop_at_target: bool = False
    patience: Count | None = None  # a run ends once its best score has not improved for this many rounds
    evaluate_every: Count | None = None  # 10: rounds 10, 20 and so on, and the last; None: every round
    participation: float | tuple[float, ...] | str = 0.1
    weighting: Weighting = "equal"
    devices: str | None = None  # "package.module:function" that returns facts, one value a client
    device: str = "cpu"
    engine: EngineName = "workers"
    workers: Count | None = None  # processes; None: one per core
    algorithm: AlgorithmSettings = FastFedADMM()
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings(num_clients=100)
    local: LocalTraining = LocalTraining(epochs="1..5")
    state: StateSettings = StateSettings()
    faults: Faults | None = None  # what goes wrong on the way, if anything
    certificate: CertificateSettings | None = None  # V^t and the Lagrangian in the record of a round
    clock: Clock | None = None  # how long things take, if that is simulated

    @model_validator(mode="after")
    def _check_goal(self) -> Self:
        client_test = self.data.client_test is not None
        check_goal(self.metric, self.direction, self.target, own=self.model.metrics, client_test=client_test)
        return self

    @field_validator("name", "label")
    @classmethod
    def _check_name(cls, value: str | None, info: Any) -> str | None:
        if value is None:
            return None
        if not value or any(not (c.isalnum() or c in "-_.") for c in value) or value.startswith("."):
            raise InputError(f"{info.field_name}={value!r} cannot name a folder; use letters, digits, - and _")
        return value

    def to_table(self) -> dict[str, Any]:
        """Return the experiment as plain values, in full."""
        table = self.model_dump()
        table["local"] = self.local.to_table()
        return table

    def to_toml(self) -> str:
        """Return the experiment as TOML; what is None is left out."""
        return tomli_w.dumps(_without_none(self.to_table()))

    @classmethod
    def from_toml(cls, text: str) -> "Experiment":
        """Return the experiment that `to_toml` wrote."""
        return cls(**parse_toml(text, where="the experiment"))

    @property
    def hash(self) -> str:
        """Ten hex digits over what determines round t: not how long, how far, or under which name."""
        table = self.to_table()
        table["algorithm"] = _hashed_table(algorithm_to_table(with_seed(self.algorithm, self.seed)))
        for key in UNHASHED:
            del table[key]
        # A metric changes no round, but for the distance, whose optimum is found first; "accuracy" has always counted.
        if self.metric not in ("accuracy", "distance"):
            del table["metric"]
        table["local"] = {OLD_WORDS["local"].get(key, key): value for key, value in table["local"].items()}
        table["state"] = {"float_type": self.state.float_type}
        for key, partition in (("shards_per_client", "shards"), ("alpha", "dirichlet")):
            if self.data.partition != partition:
                del table["data"][key]
        # What is None is left out, so that a key which is added later does not rename the runs that do without it.
        text = json.dumps(_without_none(table), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def algorithm_name(self) -> str:
        """The algorithm's name in an experiment file."""
        return algorithm_to_table(self.algorithm)["name"]

    @property
    def method(self) -> str:
        """What tables, figures and bars call it."""
        return self.label or self.algorithm_name

    @property
    def folder_name(self) -> str:
        """The name of this experiment's run folder."""
        return f"{self.name}-{self.label or self.algorithm_name.rsplit(':')[-1]}-{self.hash}"


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None and value != {}
    }
