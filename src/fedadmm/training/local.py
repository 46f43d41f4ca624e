"""How a client trains: solver, budget, batches, learning rate."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from fedadmm.core.errors import InputError
from fedadmm.core.participation import Work
from fedadmm.core.schedules import Rate, at, check_rate
from fedadmm.core.settings import Settings, at_least_one
from fedadmm.core.values import rate_from, to_plain
from fedadmm.training.epochs import Epochs, read_epochs, work_of
from fedadmm.training.limits import Speed, Tolerance, check_speed, read_speed, read_tolerance, speed_of, tolerance_at
from fedadmm.training.solver_names import SolverName, check_solver, names_of, solver_of
from fedadmm.training.solvers import solver_named


class LocalTraining(Settings):
    """How a client solves its local problem: with which solver, how exactly, and for how long.

    epochs: a number, a range such as "1..5" (drawn anew for each client and round), a list, one per client,
        or {share = 0.4, epochs = "1..10", others = 10}: stragglers, and the others; each a number or a range.
    batch_size: a number, or "full".
    learning_rate: a number, or a schedule over rounds.
    momentum: of SGD. weight_decay: of every solver.
    solver: "sgd" (if None), "gd", "lbfgs", "package.module:function" (see fedadmm.training.solvers), a list, one per
        client, or shares of the clients such as {sgd = 0.5, gd = 0.2, "package.module:function" = 0.3}. Other solvers
        than SGD take gradients over all examples: an epoch is then one such gradient after the first, and one step.
    tolerance: epsilon_i; a client stops where |grad L_i|^2 <= epsilon_i (equation 6), which SGD checks after each
        epoch. A number, a schedule such as {schedule = "power", start = 1.0, power = 2}, a list, one per client, or
        {distribution = "log_uniform", low = 1e-4, high = 1e-2}; then `power = 2` lets it fall over rounds, too.
    max_steps: a client stops after so many steps, in the midst of an epoch if need be.
    seconds, speed: a client stops after so many seconds on its simulated device, which takes `speed` gradients of
        single examples a second: a number, a list, one per client, a distribution, or the name of a fact of `devices`.
        However short the time, it takes one step (SGD: one batch; the others: two gradients over all examples).
        They limit its work and time nothing; what times the rounds is [clock], whose speeds are its own.
    """

    epochs: Epochs = 1
    batch_size: int | Literal["full"] = 10
    learning_rate: Rate = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    solver: SolverName | None = None
    tolerance: Tolerance | None = None
    max_steps: int | None = None
    seconds: float | None = None
    speed: Speed | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_old_name(cls, values: Any) -> Any:
        if isinstance(values, dict) and "accuracy" in values:
            raise InputError("local.accuracy is called local.tolerance now; change the name, the values are the same")
        return values

    _read_epochs = field_validator("epochs", mode="before")(read_epochs)

    @field_validator("batch_size", mode="before")
    @classmethod
    def _check_batch_size(cls, value: Any) -> Any:
        if value != "full" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f'batch_size={value!r} is no batch; use a whole number from 1 on, or "full"')
        return value

    @field_validator("learning_rate", mode="before")
    @classmethod
    def _check_learning_rate(cls, value: Any) -> Any:
        rate = rate_from("learning_rate", value)
        check_rate("learning_rate", rate, positive=True)
        return rate

    @field_validator("momentum", "weight_decay")
    @classmethod
    def _check_coefficients(cls, value: float, info: Any) -> float:
        if not 0 <= value < 1:
            raise InputError(f"{info.field_name}={value} is out of range; use a number from 0 to below 1")
        return value

    @field_validator("solver", mode="before")
    @classmethod
    def _check_solver(cls, value: Any) -> Any:
        return check_solver(value)

    _read_tolerance = field_validator("tolerance", mode="before")(read_tolerance)
    _read_speed = field_validator("speed", mode="before")(read_speed)

    @field_validator("max_steps", "seconds", mode="before")
    @classmethod
    def _check_one_for_all(cls, value: Any, info: Any) -> Any:
        if isinstance(value, list | tuple | dict):
            raise InputError(
                f"{info.field_name}={value!r} is no single number; give one for all clients: "
                "what may differ between them is speed, by a list or a distribution, or epochs"
            )
        return value

    _check_max_steps = field_validator("max_steps")(at_least_one)

    @field_validator("seconds")
    @classmethod
    def _check_seconds(cls, value: float | None) -> float | None:
        if value is not None:
            check_rate("seconds", value, positive=True)
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.seconds is None) != (self.speed is None):
            given, missing = ("seconds", "speed") if self.speed is None else ("speed", "seconds")
            clock = "; what times the rounds is clock.speed" if given == "speed" else ""
            raise InputError(f"{given}={getattr(self, given)!r} means nothing alone; give {missing} beside it{clock}")
        if self.momentum and "sgd" not in names_of(self.solver):
            raise InputError(f"momentum={self.momentum} is of SGD, which no client runs; leave it out")
        return self

    @property
    def work(self) -> Work:
        """The rule behind `epochs`."""
        return work_of(self.epochs)

    @property
    def beyond_epochs(self) -> str:
        """The keys that ask for more than epochs of SGD, in words."""
        keys = ("solver", "tolerance", "max_steps", "seconds")
        return ", ".join(key for key in keys if getattr(self, key) is not None)

    def learning_rate_at(self, round: int) -> float:
        """Return the learning rate of a round."""
        return at(self.learning_rate, round)

    def tolerance_at(self, round: int, *, client: int, seed: int) -> float | None:
        """Return the epsilon_i of a client in a round, None if none was asked for."""
        return None if self.tolerance is None else tolerance_at(self.tolerance, round, client=client, seed=seed)

    def solver_of(self, client: int, *, seed: int) -> str:
        """Return the name of a client's solver."""
        return solver_of(self.solver, client=client, seed=seed)

    def gradients_of(self, client: int, *, seed: int, facts: Mapping[str, Any]) -> int | None:
        """Return how many gradients of single examples a client has the time for, None if time does not matter."""
        if self.seconds is None or self.speed is None:
            return None
        return int(self.seconds * speed_of(self.speed, client=client, seed=seed, facts=facts))

    def to_table(self) -> dict[str, Any]:
        """Return plain values, in full."""
        schedules = {key: to_plain(getattr(self, key)) for key in ("learning_rate", "tolerance")}
        table = self.model_dump()
        return table | {key: value for key, value in schedules.items() if isinstance(value, dict)}

    def check(self, num_clients: int, *, facts: Mapping[str, Any] | None = None) -> None:
        """Refuse a list that does not fit the number of clients, and names that lead nowhere."""
        for key in ("epochs", "solver", "tolerance", "speed"):
            value = getattr(self, key)
            if isinstance(value, tuple) and len(value) != num_clients:
                what = "names" if key == "solver" else "numbers"
                raise InputError(f"{key} lists {len(value)} {what} for {num_clients} clients; give one for each")
        for name in names_of(self.solver) - {"sgd"}:
            solver_named(name)
        check_speed(self.speed, num_clients=num_clients, facts=facts or {})

    def check_plain(self, method: str) -> None:
        """Refuse, for a method that needs it, all but steps along the gradient."""
        if self.momentum or self.weight_decay:
            raise InputError(
                f"{method} needs plain SGD, and local has momentum={self.momentum} and "
                f"weight_decay={self.weight_decay}; set both to 0"
            )
        if others := names_of(self.solver) - {"sgd", "gd"}:
            raise InputError(f'{method} needs plain SGD, and local has solver={min(others)!r}; use "sgd" or "gd"')
