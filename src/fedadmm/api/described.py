"""What an experiment's file can say of a run that was made of Python objects, and a digest over the rest."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import name_of
from fedadmm.data.examples import Examples
from fedadmm.data.federated import FederatedData, PartitionedData
from fedadmm.data.fingerprint import bytecode_of, digest_of_lazy
from fedadmm.data.reading import Table
from fedadmm.runs.assembly import Federation
from fedadmm.runs.goal import Goal
from fedadmm.uploads.settings import FUNCTIONS


def described(federation: Federation, goal: Goal, *, named: Mapping[str, Any], whole: bool) -> Experiment:
    """Return what an experiment's file can say of a federation that was made of Python objects.

    What it cannot say is in a digest in the data's name: another run has another folder. named: keys that are not about
    the federation. whole: read all examples.
    """
    options = federation.options
    shared = {key: getattr(options, key) for key in Experiment.model_fields if hasattr(options, key)}
    rule: Any = options.participation
    if not isinstance(rule, int | float):
        rule = tuple(map(float, rule)) if isinstance(rule, Sequence | np.ndarray) else _name(rule)
    of_model: dict[str, Any] = {"name": _name(options.model), "loss": _name(options.loss)}
    of_model |= {"l2": options.l2 or None, "personal": options.personal}
    digest, num_clients = _digest(federation, whole=whole), options.data.num_clients
    of_data: dict[str, Any] = {"name": f"python:{digest}", "partition": "given", "num_clients": num_clients}
    of_data["float_type"] = options.float_type
    if federation.task.held_out is not None:
        held, kept = (int(part.num_examples.sum()) for part in (federation.task.held_out, options.data))
        of_data["client_test"] = round(held / (held + kept), 3)
    own = {"metrics": {key: _name(function) for key, function in (options.metrics or {}).items()}}
    ends = {key: getattr(goal, key) for key in ("target", "stop_at_target", "patience")}
    return Experiment(
        **shared
        | {**named, **ends, "rounds": max(1, goal.rounds)}
        | {"algorithm": federation.algorithm, "participation": rule, "model": of_model | own, "data": of_data}
        | {"devices": None if options.devices is None else "python:devices", "device": str(options.device)}
    )


def _name(value: Any) -> str:
    """Return a string as it is, and of a function or a network where it is defined."""
    return name_of(value).removeprefix(f"{functional.__name__}:")


def _digest(federation: Federation, *, whole: bool) -> str:
    """Return a digest over data, or some of it, initial weights and functions."""
    options, found = federation.options, hashlib.blake2b(digest_size=5)
    for part in (bytecode_of(module.forward) for module in federation.task.model.module.modules()):
        found.update(part)
    reader = federation.task.reader
    tables = [] if reader is None else [vars(part) for part in reader.parts if isinstance(part, Table)]
    tensors = (federation.initial, federation.task.personal, _examples(options.data, whole=whole), tables)
    for tensor in tree_leaves(tensors):  # of tuples and dicts of tensors, too
        if isinstance(tensor, torch.Tensor):
            found.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    if whole and reader is not None and reader.is_lazy:
        found.update(digest_of_lazy(reader))
    found.update(np.asarray(options.data.num_examples).tobytes())
    own = {"participation": options.participation, "loss": options.loss, **(options.metrics or {})}
    if options.compression is not None and not isinstance(options.compression.name, str):
        own |= {name: getattr(options.compression.name, name) for name in FUNCTIONS}
    for key, value in own.items():
        found.update(key.encode() + (bytecode_of(value) if callable(value) else repr(value).encode()))
    for key, numbers in (options.devices or {}).items():
        found.update(key.encode() + np.asarray(numbers).tobytes())
    return found.hexdigest()


def _examples(data: FederatedData, *, whole: bool) -> list[Examples]:
    """Return all examples if they are wanted and in memory, else those of some clients, and the test examples."""
    if whole and isinstance(data, PartitionedData):
        found = [Examples(data.inputs, data.targets)]
    else:
        some = {0, data.num_clients // 2, data.num_clients - 1} if whole else {0}
        found = [data.client(client) for client in sorted(some)]
    held_out: FederatedData | None = getattr(data, "held_out", None)
    found += [] if data.test is None else [data.test]
    return found + ([] if held_out is None else _examples(held_out, whole=whole))
