"""A model's loss and metrics over examples."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional

from fedadmm.core.engine import Scores
from fedadmm.data.examples import Examples
from fedadmm.training.flat import channels_last

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of (outputs, targets): their mean loss
Metric = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of (outputs, targets): a mean over the examples

BATCH = 1000  # examples that are in memory at once


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of examples whose largest score is at their class."""
    return (outputs.argmax(dim=1) == targets).double().mean()


def least_squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return half the mean squared gap: to the targets, or where they are classes to 1 at the class and 0 elsewhere."""
    if targets.is_floating_point():
        return ((outputs - targets) ** 2).mean() / 2
    at_class = outputs.gather(1, targets[:, None])
    return ((outputs**2).sum(dim=1, keepdim=True) - 2 * at_class + 1).mean() / 2


def loss_of_each(loss: Loss) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the loss of each example, [N]: a loss is a mean over examples, so that of one example is its own."""
    if loss is functional.cross_entropy:
        return lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none")
    return vmap(lambda output, target: loss(output[None], target[None]).reshape(()))


@torch.inference_mode()
def score(module: nn.Module, examples: Examples, *, loss: Loss, metrics: Mapping[str, Metric]) -> Scores:
    """Return the mean loss and each metric's mean over one batch, in evaluation mode."""
    training = module.training
    module.eval()
    outputs = module(channels_last(examples.inputs))
    module.train(training)
    functions = {"loss": loss, **metrics}
    means = {name: float(function(outputs, examples.targets)) for name, function in functions.items()}
    return Scores(len(examples.targets), means)


def combined(parts: Iterable[Scores]) -> dict[str, float]:
    """Return the means over all parts, added up in their order."""
    total: dict[str, float] = {}
    num_examples = 0
    for part in parts:
        num_examples += part.num_examples
        for name, mean in part.means.items():
            total[name] = total.get(name, 0.0) + mean * part.num_examples
    return {name: value / num_examples for name, value in total.items()}


def batches(examples: Examples) -> list[Examples]:
    """Return examples in parts of BATCH."""
    parts = zip(examples.inputs.split(BATCH), examples.targets.split(BATCH), strict=True)
    return [Examples(inputs, targets) for inputs, targets in parts]
