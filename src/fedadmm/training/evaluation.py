"""A model's loss and metrics over examples, and whether they fit: tried on two, before anything is written."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional

from fedadmm.core.engine import Scores
from fedadmm.core.errors import InputError, calling, failure
from fedadmm.data.examples import Examples, is_whole
from fedadmm.training.flat import FlatModel, channels_last

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of (outputs, targets): their mean loss
Metric = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of (outputs, targets): a mean over the examples

BATCH = 1000  # examples that are in memory at once


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of targets whose largest score is at their class: of all examples, or of all their places."""
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
        return lambda outputs, targets: _mean_of_each(functional.cross_entropy(outputs, targets, reduction="none"))
    return vmap(lambda output, target: loss(output[None], target[None]).reshape(()))


def _mean_of_each(losses: torch.Tensor) -> torch.Tensor:
    return losses.flatten(1).mean(dim=1) if losses.ndim > 1 else losses


@torch.inference_mode()
def score(module: nn.Module, examples: Examples, *, loss: Loss, metrics: Mapping[str, Metric]) -> Scores:
    """Return the mean loss and each metric's mean over one batch, in evaluation mode."""
    training, means = module.training, {}
    module.eval()
    with calling(f"the model, evaluated on {tuple(examples.inputs.shape)},"):
        outputs = module(channels_last(examples.inputs))
    module.train(training)
    for name, function in {"loss": loss, **metrics}.items():
        with calling(f"the {name}, given {tuple(outputs.shape)} and {tuple(examples.targets.shape)} in evaluation,"):
            means[name] = float(function(outputs, examples.targets))
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


def check_model(
    model: FlatModel,
    examples: Examples,
    *,
    test: Examples | None,
    loss: Loss,
    metrics: Mapping[str, Metric],
    num_classes: int = 0,
) -> None:
    """Refuse a model that does not take the inputs, and a loss or a metric that does not take its outputs."""
    for name, parameter in model.module.named_parameters():
        if not torch.isfinite(parameter).all():
            raise InputError(f"the model's {name} is not finite before the first round; correct how it is initialised")
    inputs, targets = _two_of(examples, device=model.weights.device)
    outputs = _tried(model, inputs, what="inputs")
    shape = tuple(inputs.shape)
    if not isinstance(outputs, torch.Tensor) or outputs.shape[:1] != targets.shape[:1]:
        got = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise InputError(f"the model returns {got} for inputs of shape {shape}; return one row per example")
    if loss in (functional.cross_entropy, functional.nll_loss) and outputs.ndim > 1 and outputs.shape[1] < num_classes:
        raise InputError(
            f"the model returns {outputs.shape[1]} scores for an example, and the data has {num_classes} classes; give "
            f"its last layer {num_classes} outputs"
        )
    for name, function in {"loss": loss, **metrics}.items():
        try:
            number = torch.as_tensor(function(outputs, targets)).numel()
        except Exception as error:
            raise InputError(
                f"the {name} does not take (outputs, targets) of shapes {tuple(outputs.shape)} and "
                f"{tuple(targets.shape)}: {_first_line(error)}; correct it, or the model's last layer"
            ) from error
        if number != 1:
            raise InputError(f"the {name} returns {number} numbers; return the mean over the examples")
    if test is not None:
        _tried(model, _two_of(test, device=model.weights.device).inputs, what="test inputs")


def check_whole_inputs(model: FlatModel, examples: Examples) -> None:
    """Try every example of whole inputs: in a stack, a number too large would find the next client's weights."""
    if is_whole(examples.inputs):
        for inputs, _ in batches(examples):
            _tried(model, inputs.to(model.weights.device), what="inputs")


def _two_of(examples: Examples, *, device: torch.device) -> Examples:
    """Return the first two examples; of whole inputs those with the lowest and the highest number."""
    rows = torch.arange(min(2, len(examples.targets)))
    if is_whole(examples.inputs) and examples.inputs.numel():
        width = examples.inputs[0].numel()
        rows = torch.stack([examples.inputs.argmin(), examples.inputs.argmax()]).cpu() // width
    return Examples(examples.inputs[rows].to(device), examples.targets[rows].to(device))


def _tried(model: FlatModel, inputs: torch.Tensor, *, what: str) -> object:
    try:
        return _outputs(model, inputs)
    except Exception as error:
        shape, first = tuple(inputs.shape), _first_line(error)
        whole, kind = is_whole(inputs), str(inputs.dtype).removeprefix("torch.")
        other = inputs.to(model.weights.dtype) if whole else inputs.long()
        if _takes(model, other) and whole:
            sentence = (
                f"the {what} are whole numbers ({kind}), and the model takes none: give them as floats, inputs.float()"
            )
        elif _takes(model, other):
            sentence = f"the {what} are {kind}, and the model takes whole numbers: give them as such, inputs.long()"
        elif whole and isinstance(error, IndexError):
            sentence = f"the model does not take {what} {out_of_range(inputs, first)}"
        else:
            sentence = f"the model does not take {what} of shape {shape}: {first}"
        raise InputError(sentence) from error


def explained(error: Exception, inputs: torch.Tensor, *, num_examples: int) -> str | None:
    """Return what is wrong with a batch on which a model fails, and the remedy; None if that is not known."""
    if isinstance(error, IndexError) and is_whole(inputs):
        return f"has a batch of inputs {out_of_range(inputs, str(error))}"
    if "more than 1 value per channel" not in str(error):
        return None
    remedy = (
        "give it at least 2 examples, or use a model without batch normalisation"
        if num_examples == 1
        else f"use a batch_size that leaves no remainder of 1 in {num_examples}"
    )
    return f"has a batch of one example, on which batch normalisation cannot train; {remedy}"


def loss_failure(error: Exception, outputs: torch.Tensor, targets: torch.Tensor, *, owner: str) -> InputError:
    """Return what is wrong with a loss that fails on a batch."""
    shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} of {owner}"
    if isinstance(error, IndexError) and not targets.is_floating_point():
        return InputError(
            f"the loss does not take {shapes}: {_first_line(error)}; the targets are from {int(targets.min())} to "
            f"{int(targets.max())}: number them from 0, and give the model's last layer an output for each"
        )
    return failure(f"the loss, given {shapes},", error)


def out_of_range(inputs: torch.Tensor, error: str) -> str:
    """Return what is wrong with whole inputs that are no rows of an embedding, and the remedy."""
    return (
        f"from {int(inputs.min())} to {int(inputs.max())}: {error}; number them from 0, and give nn.Embedding a row "
        "for each number"
    )


def _takes(model: FlatModel, inputs: torch.Tensor) -> bool:
    try:
        _outputs(model, inputs)
    except Exception:
        return False
    return True


def _outputs(model: FlatModel, inputs: torch.Tensor) -> object:
    """Return what the model makes of inputs, in evaluation mode; its weights stay, even if a max_norm rules them."""
    training, weights = model.module.training, model.weights.clone()
    model.module.eval()
    try:
        with torch.inference_mode():
            return model.module(inputs)
    finally:
        model.module.train(training)
        model.load(weights)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
