"""A model's loss and metrics over examples."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional

from fedadmm.core.engine import Scores
from fedadmm.core.errors import InputError, calling, import_named
from fedadmm.data.examples import IGNORED, Examples, Tree, joined_rows, num_rows, shapes
from fedadmm.training.flat import FlatModel

Loss = Callable[[Any, Any], torch.Tensor]  # of (outputs, targets): their mean loss
Metric = Callable[[Any, Any], torch.Tensor]  # of (outputs, targets), those of all examples

# Of (inputs, targets, epoch, number of the batch): the same, or what is read where inputs are rows.
Read = Callable[[torch.Tensor, torch.Tensor, int, int], tuple[Tree, Tree]]

BATCH = 1000  # examples that are in memory at once
CONVOLVED = 250  # of a network with convolutions: what they make of more does not stay in the cache


def as_it_is(inputs: torch.Tensor, targets: torch.Tensor, epoch: int, number: int) -> tuple[Tree, Tree]:
    """Return a batch that is in memory."""
    return inputs, targets


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of targets whose largest score is at their class: of all examples, or of all their places."""
    return _accuracy(outputs, targets, ignored=IGNORED)


def _accuracy(outputs: torch.Tensor, targets: torch.Tensor, *, ignored: int) -> torch.Tensor:
    return (outputs.argmax(dim=1) == targets)[targets != ignored].double().mean()


def metrics_for(outputs: Any, targets: Any, *, loss: Loss, metrics: Mapping[str, Metric]) -> Mapping[str, Metric]:
    """Return the metrics: our accuracy is left out where outputs are not scores, and ignores what the loss does."""
    if metrics.get("accuracy") is not accuracy:
        return metrics
    if not are_scores(outputs, targets):
        return {name: metric for name, metric in metrics.items() if metric is not accuracy}
    return {**metrics, "accuracy": partial(_accuracy, ignored=_ignored(loss))}


def are_scores(outputs: Any, targets: Any) -> bool:
    """Return whether outputs are scores [example, class, ...] for targets that are classes, [example, ...]."""
    if not isinstance(outputs, torch.Tensor) or not isinstance(targets, torch.Tensor) or targets.is_floating_point():
        return False
    return outputs.ndim > 1 and outputs.shape[1] > 1 and outputs.shape[:1] + outputs.shape[2:] == targets.shape


def _ignored(loss: Loss) -> int:
    options = loss.keywords if isinstance(loss, partial) else getattr(loss, "__dict__", {})
    return options.get("ignore_index", options.get("ignored", IGNORED))


def divisor(loss: Loss, targets: Any) -> float:
    """Return what the mean loss of a batch was divided by: the number of its targets that count, or their weights."""
    if not isinstance(targets, torch.Tensor) or targets.is_floating_point():
        return num_rows(targets)
    counting, weights = targets[targets != _ignored(loss)], _weights(loss)
    return len(counting) if weights is None else float(weights[counting].sum())


def is_plain_mean(loss: Loss, targets: torch.Tensor) -> bool:
    """Return whether a loss counts all of these targets alike."""
    return _weights(loss) is None and (targets.is_floating_point() or divisor(loss, targets) == targets.numel())


def _weights(loss: Loss) -> torch.Tensor | None:
    """Return the weights of classes, by whose sum the loss divides."""
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        return loss.weight
    if isinstance(loss, partial) and loss.func in (functional.cross_entropy, functional.nll_loss):
        return loss.keywords.get("weight")
    return None


def least_squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return half the mean squared gap: to the targets, or where they are classes to 1 at the class and 0 elsewhere."""
    if targets.is_floating_point():
        return ((outputs - targets) ** 2).mean() / 2
    at_class = outputs.gather(1, targets[:, None])
    return ((outputs**2).sum(dim=1, keepdim=True) - 2 * at_class + 1).mean() / 2


def loss_named(name: str) -> Loss:
    """Return the loss that an experiment names; refuse a name that leads nowhere."""
    if ":" in name:
        found: Loss = import_named(name, what="loss")
        return found
    if name != "least_squares" and not hasattr(functional, name):
        raise InputError(
            f"loss={name!r} is unknown; use least_squares, a function of torch.nn.functional or "
            '"package.module:function"'
        )
    return least_squares if name == "least_squares" else getattr(functional, name)


def loss_of_each(loss: Loss) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the loss of each example, [N]: a loss is a mean over examples, so that of one example is its own."""
    if loss is functional.cross_entropy:
        return lambda outputs, targets: _mean_of_each(functional.cross_entropy(outputs, targets, reduction="none"))
    return vmap(lambda output, target: loss(output[None], target[None]).reshape(()))


def _mean_of_each(losses: torch.Tensor) -> torch.Tensor:
    return losses.flatten(1).mean(dim=1) if losses.ndim > 1 else losses


@torch.no_grad()
def score(model: FlatModel, parts: Iterable[tuple[Any, Any]], *, loss: Loss, metrics: Mapping[str, Metric]) -> Scores:
    """Return the loss and the metrics over some batches, in evaluation mode; a user's metric is given all at once."""
    ours = {"loss": loss, **{name: metric for name, metric in metrics.items() if _is_ours(metric)}}
    found, seen = [], []
    training = model.module.training
    model.module.eval()
    for inputs, targets in parts:
        with calling(f"the model, evaluated on {shapes(inputs)},"):
            outputs = model(model.laid_out(inputs))
        divisors = {name: divisor(function, targets) for name, function in ours.items()}
        counting = {name: function for name, function in ours.items() if divisors[name]}
        sums = {name: _number(name, function, outputs, targets) * divisors[name] for name, function in counting.items()}
        found.append(Scores(sums, divisors))
        if len(ours) <= len(metrics):
            seen.append((outputs, targets))
    model.module.train(training)
    if seen:
        outputs, targets = seen[0] if len(seen) == 1 else joined_rows(seen)
        size, own = num_rows(targets), {name: metric for name, metric in metrics.items() if name not in ours}
        sums = {name: _number(name, metric, outputs, targets) * size for name, metric in own.items()}
        found.append(Scores(sums, dict.fromkeys(own, size)))
    return added(found)


def _number(name: str, function: Metric, outputs: Tree, targets: Tree) -> float:
    remedy = "correct it" if name == "loss" else "correct it, or return float('nan') where it is not defined"
    with calling(f"the {name}, given {shapes(outputs)} and {shapes(targets)} in evaluation,", remedy=remedy):
        return float(function(outputs, targets))


def can_be_divided(metrics: Mapping[str, Metric]) -> bool:
    """Return whether all metrics are means over targets, so that they can be taken batch by batch."""
    return all(_is_ours(metric) for metric in metrics.values())


def _is_ours(metric: Metric) -> bool:
    return isinstance(metric, partial) and metric.func is _accuracy


def added(parts: Iterable[Scores]) -> Scores:
    """Return the scores of all parts as one, added up in their order."""
    total = Scores({}, {})
    for part in parts:
        for sums, own in zip(total, part, strict=True):
            for name, value in own.items():
                sums[name] = sums.get(name, 0.0) + value
    return total


def combined(parts: Iterable[Scores]) -> dict[str, float]:
    """Return the means over all parts; that of nothing is not a number."""
    sums, divisors = added(parts)
    return {name: sums[name] / divisor if divisor else math.nan for name, divisor in divisors.items()}


def batches(examples: Examples, *, size: int | None = None) -> list[Examples]:
    """Return examples in parts of this size, of BATCH if None."""
    parts = zip(examples.inputs.split(size or BATCH), examples.targets.split(size or BATCH), strict=True)
    return [Examples(inputs, targets) for inputs, targets in parts]
