"""The clients' problems, from what a user gives: a model by name or as an object, data, and metrics."""

from collections.abc import Mapping

import torch
from torch import nn

from fedadmm.core.seeds import torch_seed
from fedadmm.data.federated import FederatedData
from fedadmm.training.evaluation import Loss, Metric, accuracy
from fedadmm.training.flat import independent_copy
from fedadmm.training.local import LocalTraining
from fedadmm.training.models import ModelFunction, build
from fedadmm.training.task import LearningTask


def make_task(
    model: str | nn.Module | ModelFunction,
    data: FederatedData,
    *,
    local: LocalTraining,
    loss: Loss,
    l2: float,
    metrics: Mapping[str, Metric] | None,
    seed: int,
    device: str | torch.device,
) -> LearningTask:
    """Return the task of a model on data; where targets are classes, accuracy is one of its metrics."""
    has_classes = not data.client(0).targets.is_floating_point()
    metrics = {**({"accuracy": accuracy} if has_classes else {}), **(metrics or {})}
    module = _module(model, data, seed=seed)
    return LearningTask(module, data, local=local, loss=loss, l2=l2, metrics=metrics, seed=seed, device=device)


def _module(model: str | nn.Module | ModelFunction, data: FederatedData, *, seed: int) -> nn.Module:
    if isinstance(model, nn.Module):
        return independent_copy(model)
    return build(
        model,
        input_shape=tuple(data.client(0).inputs.shape[1:]),
        num_classes=data.num_classes,  # type: ignore[attr-defined]
        seed=torch_seed(seed, "model"),
        like=data.client(0).inputs,
    )
