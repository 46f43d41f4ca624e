"""The parts of a run, made from an experiment or from Python objects, and checked before anything is started."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedadmm.config.algorithm_table import with_seed
from fedadmm.config.compatibility import Options, check_model, check_rules, judge_of
from fedadmm.config.experiment import Experiment, Weighting
from fedadmm.config.privacy_rules import check_buffers
from fedadmm.config.secure_rules import check_unmasked
from fedadmm.config.tables import DataSettings, FloatType
from fedadmm.core.algorithm import AnyAlgorithm, Vector
from fedadmm.core.engine import StateTypes, state_types
from fedadmm.core.errors import InputError, calling, import_named
from fedadmm.core.mean import num_bytes
from fedadmm.core.metrics import ACCURACY, EPSILON, METRICS, of_clients
from fedadmm.core.metrics import Metric as Judge
from fedadmm.core.participation import Devices, Participation, participation_from
from fedadmm.core.round import ACHIEVED, ServerCheckpoint
from fedadmm.core.transport import Transport
from fedadmm.data import PartitionedData, federate, load
from fedadmm.data.federated import FederatedData, first_example, flipped, in_float_type, two_classes
from fedadmm.data.generated import GeneratedData, quadratic, synthetic
from fedadmm.engine.choice import Choice, choose
from fedadmm.engine.planner import Planner, RoundPlanner
from fedadmm.engine.probe import Forms, probe
from fedadmm.engine.process import one_thread
from fedadmm.network.devices import simulated_devices
from fedadmm.network.engines import Timing
from fedadmm.network.network import Network, timed_network
from fedadmm.runs.records import CERTIFICATE, Record
from fedadmm.training.evaluation import accuracy, loss_named
from fedadmm.training.models import initial_model
from fedadmm.training.optimum import Optimum
from fedadmm.training.task import LearningTask
from fedadmm.uploads.attack import attackers
from fedadmm.uploads.chain import transport_of
from fedadmm.uploads.privacy import PrivateSums, private_sums, sampled
from fedadmm.uploads.settings import TABLES, UploadSettings

MADE: dict[str, Callable[..., PartitionedData | GeneratedData]] = {"synthetic": synthetic, "quadratic": quadratic}

logger = logging.getLogger(__name__)


class ClientWeights:
    """The weight of each client in a mean: 1, or its number of examples."""

    def __init__(self, weighting: Weighting, data: FederatedData) -> None:
        self.values = None if weighting == "equal" else data.num_examples.astype(np.float64)  # [client]; None: all 1
        self.total = float(data.num_clients if self.values is None else self.values.sum())

    def __call__(self, client: int) -> float:
        """Return the weight of a client."""
        return 1.0 if self.values is None else float(self.values[client])


@dataclass(frozen=True)
class Federation:
    """All that a simulation plays with, but the place of its state."""

    algorithm: AnyAlgorithm
    options: Options
    task: LearningTask
    weights: ClientWeights
    engine: Choice
    network: Network
    planner: RoundPlanner
    initial: Vector  # theta^0
    begin: ServerCheckpoint  # before round 1
    optimum: Optimum | None  # where the distance to it is asked for
    judge: Judge | None  # the metric that was asked for
    transport: Transport | None = None  # what becomes of uploads on their way

    @property
    def state_types(self) -> StateTypes:
        """The types of what a store keeps."""
        held_back = self.transport is not None and self.transport.keeps_held_back
        return state_types(self.algorithm, personal=self.task.personal is not None, held_back=held_back)


def _array(values: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:  # lists of other lengths in a list
        return np.asarray(values, dtype=object)


def assemble(algorithm: AnyAlgorithm, options: Options) -> Federation:
    """Return the federation that these options describe; a mistake in them is found here."""
    data, clock, seed = options.data, options.clock, options.seed
    algorithm = with_seed(algorithm, seed)
    participation = sampled(options.privacy, participation_from(options.participation))
    facts = {key: _array(values) for key, values in (options.devices or {}).items()}
    for key, values in facts.items():
        if values.shape != (data.num_clients,) or values.dtype.kind not in "biuf":
            raise InputError(
                f"devices has {key!r} with {values.size} values; give a number for each of {data.num_clients} clients"
            )
    devices = Devices(data.num_clients, {"num_examples": data.num_examples, **facts})
    _check_names(options)
    check_rules(algorithm, options, participation=participation, devices=devices)
    weights = ClientWeights(options.weighting, data)
    with one_thread():
        task = _task(options)
        check_model(algorithm, task)
        if options.privacy is not None:
            check_buffers(task.model)
        task.check_batches()
        check_unmasked(options.uploads, num_buffers=sum(part.numel() for part in task.buffers()))
        initial = task.model.weights.clone()
        forms = probe(algorithm, initial)
        private, num_clients = _private(options, participation, forms), data.num_clients
        transport = transport_of(
            options.uploads,
            seed=seed,
            num_clients=num_clients,
            like=forms.upload,
            client=type(forms.client),
            private=private,
        )
        choice = choose(options.engine, algorithm, task, num_workers=options.workers, transport=transport)
        judge = judge_of(options, task)
        optimum = task.optimum(weights.values) if judge is not None and judge.needs_optimum else None
    begin = ServerCheckpoint(0, algorithm.init_server(initial), task.buffers(), 0.0)
    simulated = None if clock is None else simulated_devices(clock, seed=seed, num_clients=data.num_clients)
    speed, local = None if simulated is None else simulated.speed, options.local
    planner = Planner(algorithm, participation=participation, local=local, devices=devices, seed=seed, speed=speed)
    network = Network(seed, options.faults)
    if clock is not None and simulated is not None:
        upload = forms.upload
        if transport is not None and transport.codec is not None:
            upload = tuple(transport.codec.form(upload).values())
        down, up = (num_bytes(form) + num_bytes(begin.buffers) for form in (forms.download, upload))
        timing = Timing(simulated, num_examples=data.num_examples, bytes_down=down, bytes_up=up)
        network = timed_network(clock, options.faults, timing, planner, seed=seed)
    plans = network.schedule or planner
    own = (task, weights, choice, network, plans, initial, begin, optimum, judge, transport)
    return Federation(algorithm, options, *own)


def _private(options: Options, participation: Participation, forms: Forms) -> PrivateSums | None:
    """Return the server's half of differential privacy, None if there is none."""
    if options.privacy is None:
        return None
    num_clients, like = options.data.num_clients, forms.upload
    about: dict[str, Any] = {"participation": participation, "num_clients": num_clients, "like": like}
    return private_sums(options.privacy, seed=options.seed, **about)


def _rule_named(name: str) -> Any:
    """Return the participation that a text names."""
    if ":" not in name:
        remedy = 'use a fraction such as 0.1, or "package.module:function"'
        raise InputError(f"participation={name!r} is not a number; {remedy}")
    return import_named(name, what="participation")


def _check_names(options: Options) -> None:
    """Refuse a metric of the user's under a name that a record has for something else; the accuracy may be theirs."""
    taken = {*Record.__dataclass_fields__, *METRICS, EPSILON.name} - {ACCURACY.name}
    taken |= set() if options.privacy is None else {"clip", "within_clip"}
    taken |= set() if options.certificate is None else {*CERTIFICATE}
    taken |= set() if options.local.tolerance is None and options.local.solver is None else {*ACHIEVED}
    metrics = options.metrics or {}
    taken |= {*of_clients(["loss", ACCURACY.name, *metrics])}
    for name in metrics:
        if not isinstance(name, str):
            raise InputError(f"metrics has {name!r} as a name, which is not a string; give one, such as 'f1'")
        if name in taken:
            raise InputError(f"metrics has {name!r}, which a record has for something else; give it another name")


def _task(options: Options) -> LearningTask:
    seed = options.seed
    data, attack = options.data, options.attack
    if attack is not None and attack.name == "label_flip":
        data = flipped(data, attackers(attack, num_clients=data.num_clients, seed=seed))
    if not isinstance(options.model, nn.Module) and not hasattr(data, "num_classes"):
        raise InputError(
            f"{type(data).__name__} has no num_classes; give it the number of classes, or 0 where targets are numbers"
        )
    num_classes = getattr(data, "num_classes", 0)
    inputs, targets = first_example(data)
    module = initial_model(options.model, seed=seed, inputs=inputs, targets=targets, num_classes=num_classes)
    if options.float_type not in (None, *get_args(FloatType)):
        raise InputError(f"float_type={options.float_type!r} is unknown; use one of {', '.join(get_args(FloatType))}")
    if options.float_type == "float64":
        module = module.double()
    if any(parameter.dtype == torch.float64 for parameter in module.parameters()):
        data = in_float_type(data, torch.float64)
    local, device, metrics = options.local, options.device, {"accuracy": accuracy, **(options.metrics or {})}
    same: dict[str, Any] = {"loss": options.loss, "l2": options.l2, "personal": options.personal}
    same["autocast"] = options.float_type == "bfloat16"
    return LearningTask(module, data, local=local, metrics=metrics, seed=seed, device=device, **same)


def federation_of(experiment: Experiment, *, data_dir: Path | None = None) -> Federation:
    """Return the federation that an experiment describes; a mistake in it is found here, before any round."""
    data = data_of(experiment, data_dir=data_dir)
    model, float_type, rule = experiment.model, experiment.data.float_type, experiment.participation
    same = ["local", "seed", "weighting", "device", "engine", "workers", "faults", "certificate", "clock"]
    same += ["metric", "direction", "evaluate_every", "max_norm", *TABLES]
    (inputs, targets), kind = first_example(data), None if float_type is None else getattr(torch, float_type)
    about: dict[str, Any] = {
        "inputs": inputs,
        "targets": targets,
        "num_classes": data.num_classes,
        "float_type": kind,
        "options": model.options,
    }
    module = initial_model(model.name, seed=experiment.seed, **about)
    options = Options(
        model=module,
        data=data,
        participation=_rule_named(rule) if isinstance(rule, str) else rule,
        loss=loss_named(model.loss),
        l2=model.l2 or 0.0,
        personal=model.personal,
        float_type=experiment.data.float_type,
        metrics={name: import_named(path, what="metric") for name, path in model.metrics.items()},
        devices=_facts(experiment.devices) if experiment.devices else None,
        **{name: getattr(experiment, name) for name in same},
    )
    federation = assemble(experiment.algorithm, options)
    if experiment.target is not None and experiment.metric is None and "accuracy" not in federation.task.scored:
        logger.warning(
            "target=%g is held against the loss, as there is no accuracy here; give metric and target of your own",
            experiment.target,
        )
    return federation


def keeps_rest(experiment: Experiment) -> bool:
    """Return whether the clients of an experiment keep what was left out of their uploads."""
    return UploadSettings.of(experiment).keep_rest(state_types(experiment.algorithm).client)


def stored_types(experiment: Experiment) -> StateTypes:
    """Return the types of what the store of an experiment keeps."""
    personal, held_back = experiment.model.personal is not None, keeps_rest(experiment)
    return state_types(experiment.algorithm, personal=personal, held_back=held_back)


def data_of(experiment: Experiment, *, data_dir: Path | None = None) -> PartitionedData | GeneratedData:
    """Return the data of an experiment, dealt to its clients."""
    settings = experiment.data
    if settings.name.startswith("python:"):
        raise InputError(
            "the data and the model of this run were given from Python; call fedadmm.simulate again, with the same "
            "arguments and out"
        )
    if settings.name in MADE:
        return _made(settings, seed=experiment.seed)
    about: dict[str, Any] = {"normalisation": settings.normalisation, "options": settings.options}
    dataset = load(settings.name, data_dir=data_dir, **about)
    keys = {"num_clients", "partition", "shards_per_client", "alpha", "quantiles", "client_test", "validation"}
    data = federate(dataset, seed=experiment.seed, **settings.model_dump(include=keys))
    if settings.positive is not None:
        data = two_classes(data, positive=settings.positive)
    # Data of bfloat16 would lose digits: autocast rounds what it has to.
    kept = settings.float_type in (None, "bfloat16")
    return data if kept else in_float_type(data, getattr(torch, str(settings.float_type)))


def _made(settings: DataSettings, *, seed: int) -> PartitionedData | GeneratedData:
    if settings.num_clients is None or settings.partition != "natural":
        raise InputError(
            f'data "{settings.name}" with num_clients={settings.num_clients} and partition {settings.partition!r}: '
            'it is made client by client; give num_clients, and partition = "natural"'
        )
    for key in ("normalisation", "validation", "positive", "float_type", "client_test"):
        if getattr(settings, key) is not None:
            raise InputError(f'data "{settings.name}" is taken as it is; leave out {key}')
    with calling(f'data "{settings.name}" with options {settings.options}'):
        return MADE[settings.name](num_clients=settings.num_clients, seed=seed, **settings.options)


def _facts(name: str) -> dict[str, list[float]]:
    """Return the facts about the clients that a user's function knows."""
    function = import_named(name, what="devices")
    with calling(
        f'devices "{name}"', remedy="return facts such as {'energy': [3, 1, 2]}, with a value for each client"
    ):
        return {str(fact): list(values) for fact, values in function().items()}
