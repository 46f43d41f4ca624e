"""Whether a model, its loss and its metrics fit the data: tried on two examples, before anything is written."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from fedadmm.core.errors import InputError, failure
from fedadmm.data.examples import Examples, Tree, cloned, is_record, is_whole, leaves, mapped, num_rows, shapes
from fedadmm.training.choices import names_of
from fedadmm.training.evaluation import Loss, Metric, Read, as_it_is, batches, is_plain_mean, metrics_for
from fedadmm.training.flat import FlatModel
from fedadmm.training.forward_checks import check_forward
from fedadmm.training.function_checks import check_cross_entropy, check_function, takes_floats
from fedadmm.training.local import LocalTraining

ANOTHER_NORM = "let the model have nn.GroupNorm(1, channels) in its place"


@torch.enable_grad()
def check_model(
    model: FlatModel,
    examples: Examples,
    *,
    test: Examples | None,
    loss: Loss,
    metrics: Mapping[str, Metric],
    num_classes: int = 0,
    read: Read = as_it_is,
    evaluated: Callable[[Mapping[str, Metric]], object] | None = None,
) -> Mapping[str, Metric]:
    """Refuse a model that does not take the inputs, and a loss or a metric that does not take its outputs.

    evaluated: scores the model as after a round, by a metric that two examples are too few for.
    Return the metrics, without our accuracy where it means nothing.
    """
    for name, parameter in model.module.named_parameters():
        if not torch.isfinite(parameter).all():
            raise InputError(f"the model's {name} is not finite before the first round; correct how it is initialised")
    inputs, targets = read(*_two_of(examples, device=model.weights.device), 0, 0)
    outputs = _tried(model, cloned(inputs), what="inputs")
    check_forward(model, inputs)
    rows = outputs.shape[:1] if isinstance(outputs, torch.Tensor) else None
    is_tree = isinstance(outputs, Mapping | tuple | list) or is_record(outputs)  # what its parts are, the loss knows
    if rows not in ((num_rows(targets),), (min(2, len(examples.targets)),)) and not is_tree:
        got = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        remedy = "return one row per example" if rows is not None else "return a tensor, or a tuple or dict of tensors"
        raise InputError(f"the model returns {got} for inputs of shape {shapes(inputs)}; {remedy}")
    model.needs_two = _needs_two(model, inputs)
    is_scored = loss in (functional.cross_entropy, functional.nll_loss) and rows is not None and outputs.ndim > 1
    if is_scored and not leaves(targets)[0].is_floating_point() and outputs.shape[1] < num_classes:
        raise InputError(
            f"the model returns {outputs.shape[1]} scores for an example, and the data has {num_classes} classes; give "
            f"its last layer {num_classes} outputs"
        )
    for name, function in {"loss": loss, **metrics}.items():
        if not callable(function) or isinstance(function, type):
            raise InputError(
                f"the {name} is {function!r}, not a function of (outputs, targets); give one, such as "
                "torch.nn.functional.mse_loss or nn.MSELoss()"
            )
    in_memory = isinstance(targets, torch.Tensor) and examples.targets.shape[1:] == targets.shape[1:]
    check_cross_entropy(loss, outputs, [targets, examples.targets] if in_memory else [targets])
    metrics = metrics_for(outputs, targets, loss=loss, metrics=metrics)
    for name, function in {"loss": loss, **metrics}.items():
        try:
            check_function(name, function, outputs, targets)
        except InputError:
            raise
        except Exception as error:
            as_floats = takes_floats(function, outputs, targets)
            if name != "loss" and evaluated is not None and not as_floats:
                evaluated({name: function})  # it may need more than two examples, as one of each class
                continue
            remedy = "correct it, or the model's last layer"
            if isinstance(targets, torch.Tensor) and targets.shape[1:] == (1,) and not targets.is_floating_point():
                remedy = "give a class for each example, targets.squeeze(1)"
            if as_floats:
                remedy = "it takes numbers, and targets are whole: give them as floats, targets.float()"
            raise InputError(
                f"the {name} does not take (outputs, targets) of shapes {shapes(outputs)} and "
                f"{shapes(targets)}: {_first_line(error)}; {remedy}"
            ) from error
    if test is not None:
        _tried(model, read(*_two_of(test, device=model.weights.device), 0, 0)[0], what="test inputs")
    return metrics


def _needs_two(model: FlatModel, inputs: Tree) -> bool:
    """Return whether the network cannot train on a single example, as batch normalisation of one number cannot."""
    if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.module.modules()):
        return False
    training = model.module.training
    model.module.train()
    try:
        with model.unnoticed(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(mapped(lambda part: part[:1], inputs))
    except ValueError as error:
        return "more than 1 value per channel" in str(error)
    finally:
        model.module.train(training)
    return False


def check_batches(num_examples: npt.NDArray[np.int64], local: LocalTraining, *, first: int = 0) -> None:
    """Refuse batches of one example for a network that cannot train on them; a last one joins the one before.

    first: the number of the client that num_examples begins with.
    """
    alone = np.flatnonzero(num_examples == 1)
    if len(alone):
        more = ["", ", as has 1 other"][len(alone) - 1] if len(alone) < 3 else f", as have {len(alone) - 1} others"
        raise InputError(
            f"client {first + alone[0]} has 1 example{more}, and batch normalisation cannot train on one; give each "
            f"client at least 2, by fewer clients or another partition, or {ANOTHER_NORM}"
        )
    if local.batch_size == 1 and "sgd" in names_of(local.solver):
        raise InputError(
            f"batch_size=1, and batch normalisation cannot train on one example; use at least 2, or {ANOTHER_NORM}"
        )


def check_plain_mean(loss: Loss, targets: torch.Tensor) -> None:
    """Refuse, for a stack, targets that a loss ignores or weighs."""
    if not is_plain_mean(loss, targets):
        raise InputError('a stack runs losses that ignore or weigh no targets; use engine="workers"')


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


def _tried(model: FlatModel, inputs: Tree, *, what: str) -> Any:
    try:
        return _outputs(model, inputs)
    except Exception as error:
        if not isinstance(inputs, torch.Tensor):
            raise InputError(
                f"the model does not take {what} of shapes {shapes(inputs)}: {_first_line(error)}; its forward is "
                "given them by position or by name, if it has as many parameters or these, else as one"
            ) from error
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


def explained(error: Exception, inputs: Tree) -> str | None:
    """Return what is wrong with a batch on which a model fails, and the remedy; None if that is not known."""
    if isinstance(error, IndexError) and isinstance(inputs, torch.Tensor) and is_whole(inputs):
        return f"has a batch of inputs {out_of_range(inputs, str(error))}"
    if "more than 1 value per channel" in str(error):  # and the first example, which was tried, has more
        return (
            f"has a batch of inputs {shapes(inputs)}, on which normalisation cannot train: a channel has one value; "
            f"use a larger batch_size, or {ANOTHER_NORM}"
        )
    return None


def loss_failure(error: Exception, outputs: Tree, targets: Tree, *, owner: str) -> InputError:
    """Return what is wrong with a loss that fails on a batch."""
    given = f"outputs {shapes(outputs)} and targets {shapes(targets)} of {owner}"
    if isinstance(error, IndexError) and isinstance(targets, torch.Tensor) and not targets.is_floating_point():
        return InputError(
            f"the loss does not take {given}: {_first_line(error)}; the targets are from {int(targets.min())} to "
            f"{int(targets.max())}: number them from 0, and give the model's last layer an output for each"
        )
    return failure(f"the loss, given {given},", error)


def out_of_range(inputs: torch.Tensor, error: str) -> str:
    """Return what is wrong with whole inputs that are no rows of an embedding, and the remedy."""
    return (
        f"from {int(inputs.min())} to {int(inputs.max())}: {error}; number them from 0, and give nn.Embedding a row "
        "for each number"
    )


def _takes(model: FlatModel, inputs: Tree) -> bool:
    try:
        _outputs(model, inputs)
    except Exception:
        return False
    return True


def _outputs(model: FlatModel, inputs: Tree) -> object:
    """Return what the model makes of inputs, in evaluation mode; its weights stay, even if a max_norm rules them."""
    training, weights = model.module.training, model.weights.clone()
    model.module.eval()
    try:
        with torch.no_grad():  # a constant that a model keeps is no inference tensor: it has to train with it
            return model(inputs)
    finally:
        model.module.train(training)
        model.load(weights)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
