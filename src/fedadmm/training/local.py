"""How a client trains: solver, budget, batches, learning rate."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import field_validator, model_validator

from fedadmm.core import per_client
from fedadmm.core.errors import InputError
from fedadmm.core.per_client import Epochs, FallingDistribution, Quantity, Stragglers
from fedadmm.core.schedules import Power, Rate, Schedule, at, check_rate, rate_from, to_plain
from fedadmm.core.settings import BelowOne, Count, Positive, Settings, count_or
from fedadmm.training.choices import NAMES, SolverName, check_optimizer_name, check_solver, names_of, own_solver


class LocalTraining(Settings):
    """How a client solves its local problem: with which solver, how exactly, and for how long.

    epochs = "1..5": a number, a range such as "1..5" (drawn anew for each client and round), a list, one per client, or
        {share = 0.4, epochs = "1..10", others = 10}: stragglers, and the others; each a number or a range.
    batch_size = 32: a number, or "full".
    drop_last = true: whether an epoch leaves out the examples that remain after its last whole batch. Where they are
        kept, and are a single one on which batch normalisation cannot train, it joins the batch before it.
    learning_rate = 0.05: a number, or a schedule over rounds.
    momentum = 0.9: of SGD, from 0 to below 1.
    weight_decay = 1e-4: of every solver and optimizer, from 0 to below 1.
    optimizer = "adam": "sgd" (the default), "adam", "adamw", or "package.module:Class", a torch optimizer or a function
        of (parameters, lr) that returns one. It takes the steps in minibatches, and sees the gradient of the loss and
        of the algorithm's terms, such as rho (w - theta). Its state is new at each visit: Adam's moments are neither
        kept nor sent. weight_decay is a part of the gradient, as in torch.optim.Adam; "adamw" does it in its own way.
    optimizer_options = {betas = [0.9, 0.99]}: further arguments of the optimizer.
    warmup = 0.1: the share of a visit's steps in which the learning rate rises from near 0 to its value, such as 0.1.
    rate_decay = "cosine": "linear" or "cosine"; the learning rate then falls towards 0 until the visit ends. Left out:
        it stays.
    clip = 10.0: of SGD; the largest norm of a batch's gradient of the loss, before weight decay, l2 and the algorithm's
        terms are added. FedDyn's published code clips to 10 (github.com/alpemreacar/FedDyn, utils_general.py). For
        FedAvg that is the same. Of FedProx, SCAFFOLD and FedDyn that code clips the sum with the term linear in w, and
        not weight decay, which is FedDyn's alpha w. FedADMM's published code (github.com/YonghaiGong/FedADMM) clips
        nothing.
    personal_epochs = 5: how many of a visit's epochs, the first ones, train the personal parts alone (model.personal).
        The others then train the shared parts alone, as FedRep does: epochs = 6 and personal_epochs = 5 are five epochs
        of the head and one of the body. Left out: every epoch trains both, as FedPer and FedBN do.
    solver = {sgd = 0.5, lbfgs = 0.5}: "sgd" (the default), "gd", "lbfgs", "package.module:function" (see
        fedadmm.training.solvers), a list, one per client, or shares of the clients such as {sgd = 0.5, gd = 0.2,
        "package.module:function" = 0.3}. Other solvers than SGD take gradients over all examples: an epoch is then one
        such gradient after the first, and one step.
    tolerance = {schedule = "power", start = 1.0, power = 2}: epsilon_i; a client stops where |grad L_i|^2 <= epsilon_i
        (equation 6), which SGD checks after each epoch. A number, a schedule, a list, one per client, or {distribution
        = "log_uniform", low = 1e-4, high = 1e-2}; then `power = 2` lets it fall over rounds, too.
    max_steps = 100: a client stops after this many steps, in the midst of an epoch if need be.
    seconds = 10: a client stops after this many seconds on its simulated device. However short the time, it takes one
        step (SGD: one batch; the others: two gradients over all examples).
    speed = {distribution = "log_uniform", low = 50, high = 1000}: of a client's device, in gradients of single examples
        a second: a number, a list, one per client, a distribution, or the name of a fact of `devices`. Where there is a
        [clock], a device has the clock's speed, and this is left out.
    """

    epochs: Epochs = 1
    batch_size: Annotated[int | Literal["full"], count_or("full")] = 10
    learning_rate: Rate = 0.1
    momentum: BelowOne = 0.0
    weight_decay: BelowOne = 0.0
    clip: Positive | None = None
    optimizer: str | None = None
    optimizer_options: dict[str, Any] | None = None
    warmup: BelowOne | None = None
    rate_decay: Literal["linear", "cosine"] | None = None
    personal_epochs: Count | None = None
    solver: SolverName | None = None
    tolerance: Rate | tuple[float, ...] | FallingDistribution | None = None
    max_steps: Count | None = None
    seconds: Positive | None = None
    speed: Quantity | str | None = None
    drop_last: bool | None = None

    _read_epochs = field_validator("epochs", mode="before")(per_client.read_epochs)

    @field_validator("learning_rate", mode="before")
    @classmethod
    def _check_learning_rate(cls, value: Any) -> Any:
        rate = rate_from("learning_rate", value)
        check_rate("learning_rate", rate, positive=True)
        return rate

    _check_solver = field_validator("solver", mode="before")(check_solver)
    _check_optimizer = field_validator("optimizer", mode="before")(check_optimizer_name)

    @field_validator("tolerance", mode="before")
    @classmethod
    def _read_tolerance(cls, value: Any) -> Any:
        if isinstance(value, dict):
            value = FallingDistribution(**value) if "distribution" in value else rate_from("tolerance", value)
        return per_client.check_positive("tolerance", value)

    @field_validator("max_steps", "seconds", mode="before")
    @classmethod
    def _check_one_for_all(cls, value: Any, info: Any) -> Any:
        if isinstance(value, list | tuple | dict):
            raise InputError(
                f"{info.field_name}={value!r} is not a single number; give one for all clients: "
                "what may differ between them is speed, by a list or a distribution, or epochs"
            )
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.speed is not None and self.seconds is None:
            raise InputError(
                f"speed={self.speed!r} means nothing alone; give seconds beside it; what times the rounds is "
                "clock.speed"
            )
        if self.momentum and "sgd" not in names_of(self.solver):
            raise InputError(f"momentum={self.momentum} is for SGD, which no client runs; leave it out")
        others = names_of(self.solver) - {"sgd"}
        if self.clip is not None and others:
            raise InputError(
                f"clip={self.clip} bounds the gradients of SGD, and local has solver={min(others)!r}; "
                "leave one of them out"
            )
        if others and (key := self._first_of_steps):
            raise InputError(f"{key} is for steps in minibatches, and local has solver={min(others)!r}; leave one out")
        if self.optimizer is not None and self.momentum:
            raise InputError(
                f"momentum={self.momentum} is for SGD, and local has optimizer={self.optimizer!r}; leave it out, or "
                "give optimizer_options"
            )
        if self.optimizer is None and self.optimizer_options is not None:
            raise InputError(f"optimizer_options={self.optimizer_options} has no optimizer; give local.optimizer")
        return self

    @property
    def _first_of_steps(self) -> str | None:
        """The first key that changes the step of SGD, with its value; None if there is none."""
        keys = ("optimizer", "warmup", "rate_decay")
        return next((f"{key}={value!r}" for key in keys if (value := getattr(self, key)) is not None), None)

    @property
    def is_sgd(self) -> bool:
        """Whether the steps in minibatches are those of SGD with one learning rate."""
        return self._first_of_steps is None

    @property
    def beyond_epochs(self) -> str:
        """The keys that ask for more than epochs of SGD, in words."""
        keys = ("optimizer", "warmup", "rate_decay", "solver", "tolerance", "max_steps", "seconds", "drop_last")
        return ", ".join(key for key in keys if (value := getattr(self, key)) is not None and value is not False)

    def batch_sizes(self, num_examples: int, batch_size: int, *, join: bool) -> list[int]:
        """Return the sizes of an epoch's batches; `join` adds a last batch of one to the one before."""
        sizes = sizes_of_batches(num_examples, batch_size, join=join and not self.drop_last)
        return [size for size in sizes if size >= batch_size] if self.drop_last else sizes

    def learning_rate_at(self, round: int) -> float:
        """Return the learning rate of a round."""
        return at(self.learning_rate, round)

    def epochs_of(self, client: int, *, round: int, seed: int) -> int:
        """Return how many epochs a client does in a round."""
        epochs = per_client.range_of(self.epochs) if isinstance(self.epochs, str) else self.epochs
        return per_client.value_of(epochs, client, seed=seed, purpose="work", round=round)

    def least_epochs(self, client: int) -> int:
        """Return the fewest epochs that a client may be asked for."""
        if isinstance(self.epochs, tuple):
            return self.epochs[client]
        return self.epochs.low if isinstance(self.epochs, Stragglers) else per_client.range_of(self.epochs).low

    @property
    def mean_epochs(self) -> float:
        """The mean number of epochs over clients and rounds."""
        if isinstance(self.epochs, tuple):
            return sum(self.epochs) / len(self.epochs)
        return self.epochs.mean if isinstance(self.epochs, Stragglers) else per_client.range_of(self.epochs).mean

    def tolerance_at(self, round: int, *, client: int, seed: int) -> float | None:
        """Return the epsilon_i of a client in a round, None if none was asked for."""
        tolerance = self.tolerance
        if tolerance is None or isinstance(tolerance, Schedule):
            return None if tolerance is None else tolerance.at(round)
        value = per_client.value_of(tolerance, client, seed=seed, purpose="accuracy")  # the stream's name since 0.1.0
        return Power(value, tolerance.power).at(round) if isinstance(tolerance, FallingDistribution) else value

    def solver_of(self, client: int, *, seed: int) -> str:
        """Return the name of a client's solver."""
        return per_client.value_of(self.solver or "sgd", client, seed=seed, purpose="solver")

    def speed_of(self, client: int, *, seed: int, facts: Mapping[str, Any]) -> float:
        """Return the speed of a client's device, which `check` has found to be known."""
        assert self.speed is not None
        if isinstance(self.speed, str):
            return float(facts[self.speed][client])
        return per_client.value_of(self.speed, client, seed=seed, purpose="speed")

    def to_table(self) -> dict[str, Any]:
        """Return plain values, in full."""
        schedules = {key: to_plain(getattr(self, key)) for key in ("learning_rate", "tolerance")}
        table = self.model_dump()
        return table | {key: value for key, value in schedules.items() if isinstance(value, dict)}

    def check(self, num_clients: int, *, facts: Mapping[str, Any] | None = None, has_clock: bool = False) -> None:
        """Refuse a list that does not fit the number of clients, names that lead nowhere, and no speed or two."""
        for key in ("epochs", "solver", "tolerance", "speed"):
            per_client.check_length(
                key, getattr(self, key), num_clients, what="names" if key == "solver" else "numbers"
            )
        for name in names_of(self.solver) - set(NAMES):
            own_solver(name)
        alone = self.personal_epochs
        if alone is not None and alone >= (least := min(map(self.least_epochs, range(num_clients)))):
            raise InputError(
                f"personal_epochs={alone} of {least} epochs leave none for the shared parts; give more epochs"
            )
        if alone is not None and self.max_steps is not None and facts is not None and "num_examples" in facts:
            self._check_shared_steps(facts["num_examples"], alone=alone, most=self.max_steps)
        if has_clock and self.speed is not None:
            raise InputError(
                f"local.speed={self.speed!r} beside a clock would be a second speed of the same device; leave out "
                "local.speed: local.seconds are counted at clock.speed, which may be a number, a list or a distribution"
            )
        if self.seconds is not None and self.speed is None and not has_clock:
            raise InputError(
                f"seconds={self.seconds!r} means nothing alone; give speed beside it, or a clock, whose speed is used"
            )
        if isinstance(self.speed, str):
            _check_fact(self.speed, num_clients=num_clients, facts=facts or {})

    def _check_shared_steps(self, num_examples: Iterable[int], *, alone: int, most: int) -> None:
        """Refuse fewer steps than personal epochs take of a client."""
        for client, count in enumerate(map(int, num_examples)):
            size = count if self.batch_size == "full" else min(self.batch_size, count)
            taken = alone * len(self.batch_sizes(count, size, join=False))
            if most <= taken:
                raise InputError(
                    f"max_steps={most} leaves none for the shared parts of client {client}, whose "
                    f"personal_epochs={alone} take {taken} steps; give more"
                )

    def check_plain(self, method: str) -> None:
        """Refuse, for a method that needs it, all but steps along the gradient."""
        if self.momentum or self.weight_decay:
            raise InputError(
                f"{method} needs plain SGD, and local has momentum={self.momentum} and "
                f"weight_decay={self.weight_decay}; set both to 0"
            )
        if others := names_of(self.solver) - {"sgd", "gd"}:
            raise InputError(f'{method} needs plain SGD, and local has solver={min(others)!r}; use "sgd" or "gd"')

    def check_alone(self, method: str) -> None:
        """Refuse, for a method that divides a way of its own among all steps, what would carry it on, or end early."""
        keys = [f"{key}={value}" for key in ("momentum", "tolerance") if (value := getattr(self, key))]
        keys += [f"solver={name!r}" for name in names_of(self.solver) - {"sgd", "gd"}]
        if keys:
            raise InputError(
                f"{method} divides a way of its own among the steps of a visit, and local has {keys[0]}; leave it out"
            )

    def check_sgd(self, method: str) -> None:
        """Refuse, for a method that reads gradients off the length of steps, other steps than those of SGD."""
        key = self._first_of_steps
        if key is None and self.personal_epochs is not None:
            key = f"personal_epochs={self.personal_epochs}"
        if key is not None:
            raise InputError(f"{method} needs steps of SGD with one learning rate, and local has {key}; leave it out")


def sizes_of_batches(num_examples: int, batch_size: int, *, join: bool) -> list[int]:
    """Return the sizes of batches that are all examples; `join` adds a last batch of one to the one before."""
    full, rest = divmod(num_examples, batch_size)
    sizes = [batch_size] * full
    if rest == 1 and full and join:
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def _check_fact(speed: str, *, num_clients: int, facts: Mapping[str, Any]) -> None:
    """Refuse a fact that the devices do not have, or that is not a speed."""
    if speed not in facts:
        raise InputError(
            f"speed={speed!r} is not a fact of the devices, which have {', '.join(facts) or 'none'}; "
            "name one of them, or give examples per second"
        )
    values = np.asarray(facts[speed])
    if values.shape != (num_clients,) or not (np.isfinite(values) & (values > 0)).all():
        raise InputError(
            f"the fact {speed!r} is not a speed of {num_clients} devices; give each a finite number above 0"
        )
