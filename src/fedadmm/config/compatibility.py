"""What a federation is made of, and what a method, an engine and a clock ask of the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedadmm.config.experiment import Experiment, Weighting
from fedadmm.config.personal_rules import check_personal, check_personal_scores
from fedadmm.config.privacy_rules import check_alone, check_clipped, check_privacy
from fedadmm.config.secure_rules import check_secure
from fedadmm.config.tables import CertificateSettings, FloatType, ModelSettings
from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.engine import EngineName, state_types
from fedadmm.core.errors import InputError, near_names
from fedadmm.core.metrics import CLIENT_LOSS, Direction, check_goal, metric_named, of_clients
from fedadmm.core.metrics import Metric as Judge
from fedadmm.core.optional import (
    AddsOwnSteps,
    GradientsOnly,
    NeedsEveryClient,
    PlainSGDOnly,
    SecondOrder,
    SkipsCommunication,
    StepsOfSGDOnly,
    UploadsMoreThanChange,
    trait,
)
from fedadmm.core.participation import Devices, Independent, Participation, ParticipationRule, Poisson, Uniform
from fedadmm.data.federated import FederatedData, check_flippable
from fedadmm.network.settings import Clock, Faults
from fedadmm.secure.settings import Secure
from fedadmm.training.evaluation import Loss, Metric, loss_named
from fedadmm.training.local import LocalTraining
from fedadmm.training.models import ModelFunction
from fedadmm.training.task import LearningTask
from fedadmm.uploads.settings import TABLES, Attack, Compression, Privacy, Robust, UploadSettings


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a federation is made of: the keyword arguments of `simulate`."""

    model: str | nn.Module | ModelFunction
    data: FederatedData
    local: LocalTraining
    participation: ParticipationRule
    seed: int
    weighting: Weighting = "equal"
    loss: Loss = functional.cross_entropy
    l2: float = 0.0
    personal: Sequence[str] | None = None  # patterns of names: parts of the model that each client keeps for itself
    metrics: Mapping[str, Metric] | None = None  # beside the accuracy, which there is where targets are classes
    metric: str | None = None  # what a run is judged by: see `Experiment`, for these three keys
    direction: Direction | None = None
    evaluate_every: int | None = None
    max_norm: float | str | None = None
    devices: Mapping[str, Sequence[float]] | None = None  # facts about the clients
    float_type: FloatType | None = None
    device: str | torch.device = "cpu"
    engine: EngineName = "workers"
    workers: int | None = None
    faults: Faults | None = None
    certificate: CertificateSettings | None = None
    clock: Clock | None = None
    privacy: Privacy | None = None
    compression: Compression | None = None
    robust: Robust | None = None
    attack: Attack | None = None
    secure: Secure | None = None

    @property
    def uploads(self) -> UploadSettings:
        """The tables about uploads."""
        return UploadSettings.of(self)


IN_FILES = ("seed", "weighting", "engine", "workers", "evaluate_every", "max_norm")


def options_from(values: Mapping[str, Any]) -> Options:
    """Return the options of these names and values, tables as settings and a named loss as the function.

    An unknown name is refused.
    """
    names = [field.name for field in fields(Options)]
    for name in values:
        if name not in names:
            raise InputError(f"a simulation has no option {name!r}; {near_names(name, names, what='options')}")
    ModelSettings(l2=values.get("l2"))
    Experiment(**{key: values[key] for key in IN_FILES if key in values})  # refuses what it would in a file
    tables: dict[str, Any] = {"certificate": CertificateSettings, "clock": Clock, "faults": Faults, **TABLES}
    given = {key: tables[key](**values[key]) for key in tables if isinstance(values.get(key), dict)}
    if isinstance(values.get("loss"), str):
        given["loss"] = loss_named(values["loss"])
    return Options(**{**values, **given})


def check_rules(algorithm: AnyAlgorithm, options: Options, *, participation: Participation, devices: Devices) -> None:
    """Refuse rules that do not fit the clients, the method or the engine."""
    client_test = getattr(options.data, "held_out", None) is not None
    check_goal(options.metric, options.direction, None, own=options.metrics or (), client_test=client_test)
    clock, faults = options.clock, options.faults
    participation.check(devices.num_clients)
    check_everyone(algorithm, participation)
    if options.privacy is not None:
        check_privacy(options)
    options.local.check(devices.num_clients, facts=devices.facts, has_clock=clock is not None)
    check_local(algorithm, options.local)
    selected = participation.size(devices.num_clients) if isinstance(participation, Uniform) else None
    if clock is not None and clock.asynchronous is not None:
        selected = clock.asynchronous.buffer
    check_uploads(algorithm, options.uploads, weighting=options.weighting, selected=selected)
    if options.attack is not None and options.attack.name == "label_flip":
        check_flippable(options.data)
    asynchronous = clock is not None and clock.asynchronous is not None
    check_secure(
        algorithm, options.uploads, max_norm=options.max_norm, weighting=options.weighting, asynchronous=asynchronous
    )
    check_personal(algorithm, options.local, options.personal)
    check_personal_scores(options, client_test=client_test)
    if faults is not None and options.engine == "ray":
        raise InputError('engine="ray" keeps no state from before a lost reply; use "workers" with faults')
    if clock is not None:
        _check_clock(clock, algorithm, faults=faults, engine=options.engine)
    if options.certificate is not None:
        _check_certificate(options.certificate, algorithm, num_clients=devices.num_clients)


def check_local(algorithm: AnyAlgorithm, local: LocalTraining) -> None:
    """Refuse settings of the local solve that a method has no room for, or would ignore."""
    steps = {PlainSGDOnly: local.check_plain, AddsOwnSteps: local.check_alone, StepsOfSGDOnly: local.check_sgd}
    for kind, check in steps.items():
        if (method := trait(algorithm, kind)) is not None:
            check(type(method).__name__)
    solving = ("momentum", "weight_decay", "clip", "optimizer", "warmup", "rate_decay", "solver", "tolerance")
    keys = " and ".join(f"{key}={value}" for key in solving if (value := getattr(local, key)))
    if keys and (takes := trait(algorithm, GradientsOnly)) is not None:
        raise InputError(
            f"{type(takes).__name__} takes gradients and no local steps, so it would ignore local's {keys}; leave "
            "them out; for a decay in every gradient use model.l2"
        )


def check_uploads(
    algorithm: AnyAlgorithm, tables: UploadSettings, *, weighting: Weighting = "equal", selected: int | None = None
) -> None:
    """Refuse tables about uploads that a method has no room for, or that do not go together.

    selected: how many clients a round has, None if that is not known.
    """
    name, robust = type(algorithm).__name__, tables.robust
    if tables.privacy is not None:
        check_clipped(algorithm)
        check_alone(tables)
    skips = trait(algorithm, SkipsCommunication) is not None
    if tables.compression is not None and tables.compression.error_feedback and skips:
        raise InputError(
            f"{name}'s clients go on alone between communications, and error_feedback keeps what was left out of an "
            "upload that arrived; leave it out"
        )
    if robust is None:
        return
    if weighting != "equal" and robust.name in ("median", "trimmed_mean", "krum"):
        raise InputError(
            f'robust.name="{robust.name}" counts every client alike, and weighting="{weighting}"; use '
            'weighting="equal", or "geometric_median" or "norm_clip", which weigh'
        )
    if selected is not None and selected < robust.fewest:
        raise InputError(
            f"robust.liars={robust.liars} needs {robust.fewest} uploads in a round, and {selected} clients take part; "
            "select more, or expect fewer liars"
        )
    if robust.norm is not None and skips:
        raise InputError(
            f"{name} uploads models and not changes, which a norm would cut short; use another robust.name"
        )
    if isinstance(robust.norm, float | int) and trait(algorithm, UploadsMoreThanChange) is not None:
        raise InputError(
            f"{name}'s uploads weigh what clients keep by numbers, so no state fits an upload that was shortened; use "
            'robust.norm = "1x", by which the server alone clips, or another method'
        )


def check_everyone(algorithm: AnyAlgorithm, participation: Participation) -> None:
    """Refuse a rule that leaves clients out, where a method needs all of them; a user's function is trusted."""
    if (needs := trait(algorithm, NeedsEveryClient)) is None:
        return
    found: Sequence[float] = ()
    if isinstance(participation, Uniform | Poisson):
        found = (participation.fraction,)
    elif isinstance(participation, Independent):
        found = participation.probabilities
    if any(share < 1 for share in found):
        raise InputError(
            f"{type(needs).__name__} needs every client in every round, and participation is {min(found):g}; "
            "use participation = 1.0"
        )


def judge_of(options: Options, task: LearningTask) -> Judge | None:
    """Return the metric that was asked for, None if none was; refuse one that no round of this task would have."""
    if options.metric is None:
        return None
    judge = metric_named(options.metric, options.direction)
    if judge.needs_optimum or judge is CLIENT_LOSS:
        return judge
    if not task.num_parts and task.held_out is None:
        raise InputError(f'metric="{judge.name}" needs test examples, and the data has none; use "client_loss"')
    if judge.name not in (*task.scored, *of_clients(task.scored)):
        raise InputError(f'metric="{judge.name}" needs targets that are classes; use one of {", ".join(task.scored)}')
    return judge


def check_model(algorithm: AnyAlgorithm, task: LearningTask) -> None:
    """Refuse a network for a method that takes Newton steps, and buffers where clients go on alone."""
    if trait(algorithm, SecondOrder) and not task.is_linear:
        raise InputError(
            f"{type(algorithm).__name__} takes Newton steps, which need a convex problem, and the model is a network; "
            "use linear, logistic_regression or softmax_regression"
        )
    if trait(algorithm, SkipsCommunication) and any(part.numel() for part in task.model.buffers()):
        raise InputError(  # each client would need its own
            f"{type(algorithm).__name__}'s clients go on alone between communications, and the model's buffers (batch "
            "normalisation) would reach them all the same; use a model without buffers"
        )


def _check_clock(clock: Clock, algorithm: AnyAlgorithm, *, faults: Faults | None, engine: str) -> None:
    """Refuse a clock under which a run would never end, or could not be done."""
    if trait(algorithm, SkipsCommunication):
        raise InputError(
            f"{type(algorithm).__name__} has rounds in which nobody communicates, which no clock times; leave out clock"
        )
    if trait(algorithm, NeedsEveryClient) and (clock.asynchronous is not None or clock.deadline is not None):
        raise InputError(
            f"{type(algorithm).__name__} needs every client in every round, and this clock does not wait for all; "
            "leave out clock.deadline and clock.asynchronous"
        )
    if clock.asynchronous is not None and faults is not None:
        raise InputError("an asynchronous server meets no faults; leave out faults, or clock.asynchronous")
    if clock.asynchronous is not None and engine == "ray":
        raise InputError(
            'engine="ray" averages what an asynchronous server needs one by one; use "workers" with clock.asynchronous'
        )
    if faults is not None and clock.deadline is None:
        raise InputError(
            "with faults a clock needs a deadline: a server that waits for a lost answer waits forever; "
            "set clock.deadline"
        )


def is_certifiable(algorithm: AnyAlgorithm) -> bool:
    """Return whether the clients of a method keep what the Lagrangian is made of."""
    return {"w", "y", "rho"} <= set(getattr(state_types(algorithm).client, "_fields", ()))


def _check_certificate(settings: CertificateSettings, algorithm: AnyAlgorithm, *, num_clients: int) -> None:
    """Refuse a method whose clients keep no w, y and rho, and a sample larger than the federation."""
    if not is_certifiable(algorithm):
        raise InputError(
            f"{type(algorithm).__name__} has no certificate: its clients do not keep w, y and rho; use fedadmm, or "
            "leave out [certificate]"
        )
    if settings.clients != "all" and settings.clients > num_clients:
        raise InputError(f'certificate.clients={settings.clients} of {num_clients} clients cannot be drawn; use "all"')
