"""What a federation is asked to do, read from Flower's run configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from flwr.app import Context
from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedadmm.algorithms import ALGORITHMS
from fedadmm.config.algorithm_table import DEFAULT, AlgorithmSettings, algorithm_to_table, with_seed
from fedadmm.config.compatibility import check_local, check_uploads
from fedadmm.config.personal_rules import check_personal
from fedadmm.config.secure_rules import check_secure
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.errors import InputError
from fedadmm.core.files import without_none
from fedadmm.core.optional import NeedsEveryClient, SkipsCommunication, trait
from fedadmm.core.participation import Uniform
from fedadmm.core.settings import Count, MaxNorm, Natural, Positive, Probability, Settings
from fedadmm.secure.settings import Secure
from fedadmm.training.local import LocalTraining
from fedadmm.uploads.settings import Compression, Privacy, Robust, UploadSettings

Scalar = str | int | float | bool


class FederationSettings(Settings):
    """The keys of [tool.flwr.app.config], with Flower's names where it has them; `algorithm` and `local` are tables."""

    name: str = "fedadmm"  # a new name is a new federation
    state_dir: str = "fedadmm-state"  # the server's, and the nodes' unless their node config has one
    num_clients: Count
    num_server_rounds: Count = 3
    fraction_train: float = 1.0
    fraction_evaluate: Probability = 1.0
    evaluate_every: Count | None = None  # 10: rounds 10, 20 and so on, and the last; None: every round
    min_available_nodes: Count = 2
    wait_limit: Positive = 600.0  # seconds that a round waits for them
    min_train_nodes: Count = 1  # with fewer than these, the run ends then
    round_timeout: Positive = 3600.0  # seconds that a round waits for its slowest node
    seed: int = 0
    max_norm: MaxNorm | None = None  # above which uploads are refused: see `Experiment`
    wire: Literal["upload", "model"] = "upload"  # what travels up: the upload's own fields, or theta + delta
    algorithm: AlgorithmSettings = ALGORITHMS[DEFAULT]()
    local: LocalTraining = LocalTraining()
    personal: tuple[str, ...] | None = None  # patterns of names that each node keeps for itself: "head.*, *.bn*"
    client_test: float | None = None  # share of a node's examples that it is scored on, and does not train on
    verify: bool = False  # instead of rounds: compare what the connected clients keep with what was applied of them
    keep_checkpoints: Natural = 3  # rounds to which server and clients can go back
    rollback_to: Natural = 0  # instead of rounds: go back to this one
    rollback_force: bool = False  # also where some clients cannot follow
    accept_code: bool = False  # go on although the code of an algorithm of the user's has changed since
    privacy: Privacy | None = None  # see `Experiment`, for these three tables
    compression: Compression | None = None
    robust: Robust | None = None
    secure: Secure | None = None  # secure aggregation: see `Experiment`
    task: dict[str, Any] = Field(default_factory=dict)  # the user's own keys

    @field_validator("algorithm")
    @classmethod
    def _check_algorithm(cls, value: AnyAlgorithm) -> AnyAlgorithm:
        if trait(value, NeedsEveryClient):
            raise InputError(
                f"{type(value).__name__} needs every client in every round, and a node of Flower's may be away; "
                "use it in a simulation (`fedadmm run`)"
            )
        if trait(value, SkipsCommunication):
            raise InputError(
                f"{type(value).__name__}'s clients compute in rounds in which nobody asks them, and a node of Flower's "
                "computes when it is asked; use it in a simulation (`fedadmm run`)"
            )
        return value

    @field_validator("personal", mode="before")
    @classmethod
    def _read_patterns(cls, value: Any) -> Any:  # a run configuration has no lists
        return tuple(pattern.strip() for pattern in value.split(",")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_local(self) -> Self:
        check_local(self.algorithm, self.local)
        check_personal(self.algorithm, self.local, self.personal)
        check_uploads(self.algorithm, self.uploads, selected=Uniform(self.fraction_train).size(self.num_clients))
        if self.privacy is not None:
            self._check_privacy()
        if self.compression is not None and self.wire == "model":
            raise InputError('wire="model" carries models as they are, and compression does not; use wire="upload"')
        check_secure(self.algorithm, self.uploads, max_norm=self.max_norm)
        if self.secure is not None and self.wire == "model":
            raise InputError('wire="model" carries models as they are, and [secure] adds uploads; use wire="upload"')
        if self.secure is not None and self.rollback_to:
            raise InputError(
                f"rollback-to={self.rollback_to} would add up the clients of a round a second time, and two sums tell "
                "who is in one of them alone; with [secure] go on from where the federation is"
            )
        return self

    @field_validator("privacy")
    @classmethod
    def _spread_epsilon(cls, value: Privacy | None, info: ValidationInfo) -> Privacy | None:
        known = value is not None and "num_server_rounds" in info.data
        return value.over(info.data["num_server_rounds"]) if value is not None and known else value

    def _check_privacy(self) -> None:
        """Refuse what would release more than noised sums, or release them twice."""
        if self.wire == "model":
            raise InputError('wire="model" rounds models, and privacy bounds changes; use wire="upload"')
        if isinstance(self.max_norm, str):
            raise InputError(f"max-norm={self.max_norm} is measured on other clients; use a number, or leave it out")
        if self.rollback_to:
            raise InputError(
                f"rollback-to={self.rollback_to} would forget rounds that were released, and with them what they cost; "
                "with privacy go on from where the federation is"
            )

    @property
    def uploads(self) -> UploadSettings:
        """The tables about uploads."""
        return UploadSettings(
            compression=self.compression, robust=self.robust, privacy=self.privacy, secure=self.secure
        )

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Scalar]) -> "FederationSettings":
        """Return the settings in a run configuration, whose keys are such as "local.learning-rate"."""
        table: dict[str, Any] = {}
        for key, value in run_config.items():
            *tables, last = key.replace("-", "_").split(".")
            inner = table
            for name in tables:
                inner = inner.setdefault(name, {})
            inner[last] = value
        return cls(**table)

    def to_table(self) -> dict[str, Any]:
        """Return the settings as tables, without what is None."""
        return without_none(self.model_dump() | {"local": self.local.to_table()})

    def evaluates(self, round: int) -> bool:
        """Return whether the model is evaluated after a round, by the server and by the nodes."""
        return round % (self.evaluate_every or 1) == 0 or round == self.num_server_rounds

    @property
    def identity(self) -> dict[str, str]:
        """What determines a round, key by key as a run configuration names them."""
        tables = {"algorithm": algorithm_to_table(with_seed(self.algorithm, self.seed)), "local": self.local.to_table()}
        given = self.uploads._asdict().items()
        tables |= {name: settings.model_dump() for name, settings in given if settings is not None}
        keys = {key: getattr(self, key) for key in ("num_clients", "fraction_train", "seed", "wire")}
        keys |= {} if self.max_norm is None else {"max_norm": self.max_norm}
        keys |= {
            f"{name}.{key}": value
            for name, table in tables.items()
            for key, value in table.items()
            if value is not None
        }
        own = {"personal": self.personal and ", ".join(self.personal), "client_test": self.client_test}
        keys |= {key: value for key, value in own.items() if value is not None}
        return {key.replace("_", "-"): str(value) for key, value in keys.items()}

    @property
    def server_folder(self) -> Path:
        """Where the server keeps its checkpoint."""
        return Path(self.state_dir) / self.name / "server"

    def client_folder(self, context: Context) -> Path:
        """Return where a node keeps its client's state."""
        state_dir = str(context.node_config.get("state-dir", self.state_dir))
        return Path(state_dir) / self.name / f"client-{client_of(context)}"


def client_of(context: Context) -> int:
    """Return the id of a node's client, which must be the same after every restart: Flower's node ids are drawn."""
    for key in ("client-id", "partition-id"):
        if key in context.node_config:
            client = context.node_config[key]
            if isinstance(client, bool) or not isinstance(client, int) or client < 0:
                raise InputError(f"{key}={client!r} is not a client; use a whole number from 0 on")
            return client
    raise InputError(
        "this node's configuration has neither client-id nor partition-id; start it with "
        '--node-config "client-id=0", another number for each node'
    )
