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
from fedadmm.core.settings import Count, MaxNorm, NonNegative, Settings, count_or
from fedadmm.network.settings import Clock, Faults
from fedadmm.training.local import LocalTraining

Weighting = Literal["equal", "examples"]
FloatType = Literal["float32", "float64", "bfloat16"]
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
    """The network: one of ours or "package.module:function", its loss, and metrics beside the accuracy.

    name = "cnn1": one of `fedadmm list`, or "package.module:function", which returns a torch.nn.Module. It is given
        input_shape and num_classes if it has parameters of these names.
    options = {width = 64}: further arguments of the model's function.
    loss = "mse_loss": "least_squares", a function of torch.nn.functional, or "package.module:function" of (outputs,
        targets) that returns their mean loss.
    l2 = 1e-3: a term l2/2 |w|^2 of every client's objective; unlike local.weight_decay, every gradient has it.
    metrics = {f1 = "own:f1"}: metrics beside the loss and the accuracy, each a function of (outputs, targets) that
        returns a mean over examples. A run can be judged by one: see `metric`.
    personal = ["head.*"]: parameters and buffers that each client keeps for itself, by patterns of their names, such as
        ["head.*"] for a personal head (FedPer; FedRep with local.personal_epochs) or ["*.bn*"] for batch normalisation
        (FedBN). They are part of the client's state, are never sent, and have no dual. Loss and metrics are then means
        over the clients, each with its own parts, on examples held out (data.client_test). Left out: all is shared.
    """

    name: str = "mlp"
    options: dict[str, Any] = Field(default_factory=dict)
    loss: str = "cross_entropy"
    l2: NonNegative | None = None
    metrics: dict[str, str] = Field(default_factory=dict)
    personal: tuple[str, ...] | None = None


class DataSettings(Settings):
    """The data and how it is dealt to clients.

    name = "mnist": one of `fedadmm data list`, made on the spot ("synthetic", "quadratic"), or
        "package.module:function", which returns (train, test): pairs of tensors or arrays, or torch Datasets.
    num_clients = 100: how many clients there are; left out where the partition settles it, as "natural" does.
    partition = "dirichlet": "iid", "shards" (a few classes each), "imbalanced", "dirichlet", "natural" (one client for
        each group of the data), or "package.module:function" of (labels, num_clients, generator) that returns the
        indices of each client's examples.
    shards_per_client = 2: for "shards"; fewer are less alike.
    alpha = 0.1: for "dirichlet"; the smaller it is, the less alike clients are.
    quantiles = 10: of targets that are numbers, each of which is then dealt as a class.
    normalisation = "released": "dataset" (its own mean and spread, the default), "released" (as the paper's code does),
        or "none".
    validation = 0.2: the share of the training examples that takes the place of the test examples.
    client_test = 0.2: the share of each client's examples that it is scored on, and does not train on. Records then
        have mean, spread and worst decile over clients of loss and metrics. A client with one example trains on it.
    positive = [1, 3, 5, 7, 9]: the classes that become class 1; all others become class 0.
    float_type = "float64": of inputs and model; "bfloat16" trains in it by autocast, on weights in float32; left out,
        the data's own.
    options = {dimension = 20}: of "quadratic": dimension, condition, heterogeneity; of "text": context, files.
    """

    name: str = "digits"
    num_clients: Count | None = None
    partition: str = "shards"
    shards_per_client: Count = 2
    alpha: float = 0.5
    quantiles: Count | None = None
    normalisation: str | None = None
    validation: float | None = None
    client_test: float | None = None

    positive: tuple[int, ...] | None = None
    float_type: FloatType | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class StateSettings(Settings):
    """Where client states are kept, and how.

    store = "memory": "disk", or "memory"; a run whose state is in memory cannot be resumed.
    float_type = "bfloat16": halves the state, and rounds it.
    durability = "power": what a committed round survives the loss of: the "process", or "power" too.
    """

    store: Literal["disk", "memory"] = "disk"
    float_type: Literal["float32", "bfloat16"] = "float32"
    durability: Literal["process", "power"] = "process"


class CertificateSettings(Settings):
    """How often V^t is recorded, and over which clients; it costs one full gradient a client.

    every = 10: 1 records every round, 10 rounds 1, 11, 21 and so on.
    clients = 20: "all", or a number that is drawn anew each time: sums are then estimates.
    """

    every: Count = 1
    clients: Annotated[int | Literal["all"], count_or("all")] = "all"


class Experiment(Settings):
    """Everything that determines a run.

    name = "mine": begins the name of the run folder.
    label = "gentle": what a comparison calls it; left out, the algorithm's name.
    seed = 1: of everything random: the initial model, the partition, who takes part, batches.
    rounds = 100: how many are played; more than are there go on with the run.
    metric = "loss": what a run is judged by: "accuracy", "loss", "client_loss", "distance" to a convex optimum, or a
        name in [model.metrics]. Left out: the test accuracy, or the loss where targets are no classes.
    direction = "lower": what is better in a metric of the user's, if its name does not say it.
    target = 0.9: the value of the metric at which a run has arrived.
    stop_at_target = true: ends a run that has arrived.
    patience = 20: ends a run once its best score has not improved for this many rounds.
    evaluate_every = 10: evaluates rounds 10, 20 and so on, and the last; left out, every round.
    max_norm = "100x": refuses uploads that are longer than this many times the median of the uploads of the last ten
        rounds, or than a number; left out, a million times as long as the model.
    participation = 0.2: who takes part in a round: a share of the clients, drawn uniformly, a list with a probability
        for each client, or "package.module:function" of (round, generator, devices) that returns their ids.
    weighting = "examples": the weight of a client in every mean: the same for all ("equal"), or its examples.
    devices = "own:devices": "package.module:function" that returns facts about the clients, such as {energy = [3, 1,
        2]}, a value for each client; participation and local.speed may use them.
    device = "cuda": where torch computes.
    engine = "stacked": what runs the clients of a round: "workers" (processes, the default), "serial", "stacked" (one
        tensor program, for small models), "ray" (a cluster), or "auto".
    workers = 4: processes, or threads of a stack; left out, one per core.
    algorithm = {name = "fedprox", rho = 0.1}: the method, by its name and its own keys, or "package.module:Class".
    model = {name = "mlp"}: the network, its loss and its metrics.
    data = {name = "digits", num_clients = 50}: the data and how it is dealt to clients.
    local = {epochs = 5, learning_rate = 0.05}: how a client trains.
    state = {store = "memory"}: where client states are kept.
    faults = {lose_replies = 0.1}: what is lost, late or doubled on the way; left out, nothing.
    certificate = {every = 10}: V^t and the Lagrangian in the record of a round, for FedADMM.
    clock = {speed = 100, deadline = 60}: how long things take, where that is simulated.
    """

    name: str = "run"
    label: str | None = None
    seed: int = 0
    rounds: Count = 60
    metric: str | None = None
    direction: Direction | None = None
    target: float | None = None
    stop_at_target: bool = False
    patience: Count | None = None
    evaluate_every: Count | None = None
    max_norm: MaxNorm | None = None
    participation: float | tuple[float, ...] | str = 0.1
    weighting: Weighting = "equal"
    devices: str | None = None
    device: str = "cpu"
    engine: EngineName = "workers"
    workers: Count | None = None
    algorithm: AlgorithmSettings = FastFedADMM()
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings(num_clients=100)
    local: LocalTraining = LocalTraining(epochs="1..5")
    state: StateSettings = StateSettings()
    faults: Faults | None = None
    certificate: CertificateSettings | None = None
    clock: Clock | None = None

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
