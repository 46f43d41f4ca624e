"""An experiment is a frozen value that says everything about a run, its algorithm included; TOML in and out."""

import hashlib
import json
from typing import Any, Literal, Self

import tomli_w
from pydantic import field_validator, model_validator

from fedadmm.algorithms import ALGORITHMS
from fedadmm.config.algorithm_table import DEFAULT, AlgorithmSettings, algorithm_to_table, hashed_table, with_seed
from fedadmm.config.tables import CertificateSettings, DataSettings, ModelSettings, StateSettings
from fedadmm.core.engine import EngineName
from fedadmm.core.errors import OLD_WORDS, InputError
from fedadmm.core.files import UNHASHED, parse_toml, used_keys, without_none
from fedadmm.core.metrics import ACCURACY, DISTANCE, Direction, check_goal
from fedadmm.core.settings import Count, MaxNorm, Settings
from fedadmm.network.settings import Clock, Faults
from fedadmm.secure.settings import Secure
from fedadmm.training.local import LocalTraining
from fedadmm.uploads.settings import Attack, Compression, Privacy, Robust

Weighting = Literal["equal", "examples"]


class Experiment(Settings):
    """Everything that determines a run.

    name = "mine": begins the name of the run folder.
    label = "gentle": what a comparison calls it; left out, the algorithm's name.
    seed = 1: of everything random: the initial model, the partition, who takes part, batches.
    rounds = 100: how many are played; more than are there go on with the run.
    metric = "loss": what a run is judged by: "accuracy", "loss", "client_loss", "distance" to a convex optimum, or a
        name in [model.metrics]. Left out: the test accuracy, or the loss where targets are not classes.
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
    privacy = {clip = 1.0, epsilon = 8, delta = 1e-5}: differential privacy of clients; left out, there is none.
    compression = {name = "int8"}: how uploads are made shorter before they travel; left out, they are not.
    robust = {name = "median"}: what takes the place of the mean of a round's uploads; left out, nothing does.
    attack = {name = "sign_flip", share = 0.2}: clients that send something wrong; left out, all are honest.
    secure = {bits = 32}: the server learns the sum of uploads and none of them; left out, it learns each.
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
    algorithm: AlgorithmSettings = ALGORITHMS[DEFAULT]()
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings(num_clients=100)
    local: LocalTraining = LocalTraining(epochs="1..5")
    state: StateSettings = StateSettings()
    faults: Faults | None = None
    certificate: CertificateSettings | None = None
    clock: Clock | None = None
    privacy: Privacy | None = None
    compression: Compression | None = None
    robust: Robust | None = None
    attack: Attack | None = None
    secure: Secure | None = None

    @model_validator(mode="after")
    def _check_goal(self) -> Self:
        client_test = self.data.client_test is not None
        own, stops = self.model.metrics, self.stop_at_target
        check_goal(self.metric, self.direction, self.target, own=own, client_test=client_test, stop_at_target=stops)
        return self

    @model_validator(mode="after")
    def _check_normalisation(self) -> Self:
        if self.privacy is not None and self.data.name.startswith("hf:") and self.data.normalisation == "dataset":
            raise InputError(
                'data.normalisation="dataset" shifts inputs by the mean of all clients\' examples, which no '
                "noise of [privacy] hides; leave it out, and normalise by constants that are known beforehand"
            )
        return self

    @field_validator("privacy")
    @classmethod
    def _spread_epsilon(cls, value: Privacy | None, info: Any) -> Privacy | None:
        # Written down once: a run that is told to go on for longer keeps its noise, and so its hash.
        return value.over(info.data["rounds"]) if value is not None and "rounds" in info.data else value

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
        return tomli_w.dumps(without_none(self.to_table()))

    @classmethod
    def from_toml(cls, text: str) -> "Experiment":
        """Return the experiment that `to_toml` wrote."""
        return cls(**parse_toml(text, where="the experiment"))

    @property
    def hash(self) -> str:
        """Ten hex digits over what determines round t: not how long, how far, or under which name."""
        table = self.to_table()
        table["algorithm"] = hashed_table(algorithm_to_table(with_seed(self.algorithm, self.seed)))
        for key in UNHASHED:
            del table[key]
        # A metric changes no round, but for the distance, whose optimum is found first; "accuracy" has always counted.
        if self.metric not in (ACCURACY.name, DISTANCE.name):
            del table["metric"]
        table["local"] = {OLD_WORDS["local"].get(key, key): value for key, value in table["local"].items()}
        table["state"] = {"float_type": self.state.float_type}
        table["data"] = used_keys(table["data"])
        # What is None is left out, so that a key which is added later does not rename the runs that do without it.
        text = json.dumps(without_none(table), sort_keys=True, separators=(",", ":"), default=str)  # dates
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
