"""A model's loss and metrics over examples."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from fedadmm.data.examples import Examples

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of (outputs, targets): their mean loss
Metric = Callable[
    [torch.Tensor, torch.Tensor], torch.Tensor
]  # of (outputs, targets): a mean over the examples

BATCH = 1000


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of examples whose largest score is at their class."""
    return (outputs.argmax(dim=1) == targets).double().mean()


@torch.inference_mode()
def evaluate(
    module: nn.Module, examples: Examples, *, loss: Loss, metrics: Mapping[str, Metric]
) -> dict[str, float]:
    """Return the mean loss and each metric's mean, in evaluation mode."""
    functions = {"loss": loss, **metrics}
    totals = dict.fromkeys(functions, 0.0)
    training = module.training
    module.eval()
    for inputs, targets in zip(examples.inputs.split(BATCH), examples.targets.split(BATCH), strict=True):
        outputs = module(inputs)
        for name, function in functions.items():
            totals[name] += float(function(outputs, targets)) * len(targets)
    module.train(training)
    return {name: total / len(examples.targets) for name, total in totals.items()}
