"""Whether a loss or a metric returns what it should, and leaves alone what it is given: tried on two examples."""

import math
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedadmm.core.errors import InputError
from fedadmm.data.examples import Tree, cloned, leaves, mapped
from fedadmm.training.evaluation import Loss, Metric

_TORCHS_WARNING = "Using a target size"


def check_function(name: str, function: Loss | Metric, outputs: Any, targets: Tree) -> None:
    """Refuse a loss or a metric of these outputs and targets that is none; what it raises is raised."""
    is_loss = name == "loss"
    given = mapped(_with_gradient, outputs) if is_loss else cloned(outputs), cloned(targets)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        value = function(*given)
    _check_number(name, value)
    if is_loss and not isinstance(value, torch.Tensor):
        raise InputError(f"the loss returns {type(value).__name__}; return a tensor with its gradient, without .item()")
    if is_loss and not value.requires_grad and any(_is_trained(part) for part in leaves(outputs)):
        raise InputError(
            "the loss has no gradient: what it returns does not depend on the outputs, or not smoothly; leave out "
            "detach, argmax and numpy"
        )
    if is_loss and _reads_parameters(function, outputs, targets):
        raise InputError(
            "the loss depends on parameters that no client trains; move them into the model, and let its forward "
            "return what the loss needs"
        )
    for what, before, after in zip(("outputs", "targets"), (outputs, targets), given, strict=True):
        if not all(map(_same, leaves(before), leaves(after))):
            raise InputError(f"the {name} changes the {what} that it is given; let it work on a copy, {what}.clone()")
    if _broadcasts(function, outputs, targets):
        raise InputError(
            f"the {name} compares each output with the targets of all examples: outputs have shape "
            f"[example{_listed(outputs)}], targets [example{_listed(targets)}]; give both the same shape, with "
            "targets[:, None], or nn.Flatten(0) as the model's last layer"
        )
    # Torch's own losses warn of a broadcast; wider outputs, as of an ensemble, may be meant.
    if is_loss and _is_narrower(outputs, targets) and any(_TORCHS_WARNING in str(one.message) for one in said):
        raise InputError(
            f"the {name} compares outputs of shape [example{_listed(outputs)}] with targets of shape "
            f"[example{_listed(targets)}]; give the model's last layer an output for each number of a target"
        )
    if is_loss and _adds_up(function, float(value.detach()), outputs, targets):
        raise InputError("the loss of twice the examples is twice as large; return the mean over the examples")


def _reads_parameters(loss: Loss, outputs: Any, targets: Tree) -> bool:
    """Return whether a loss has a gradient by something else than the outputs."""
    with warnings.catch_warnings(action="ignore"):
        value = loss(cloned(outputs), cloned(targets))
    return isinstance(value, torch.Tensor) and value.requires_grad


def _are_tensors(*parts: Any) -> bool:
    return all(isinstance(part, torch.Tensor) for part in parts)


def _is_narrower(outputs: Any, targets: Any) -> bool:
    """Return whether outputs have one number where targets have several."""
    if not _are_tensors(outputs, targets) or outputs.ndim != targets.ndim:
        return False
    return any(ours == 1 < theirs for ours, theirs in zip(outputs.shape[1:], targets.shape[1:], strict=True))


def check_cross_entropy(loss: Loss, outputs: Any, targets: Iterable[Any]) -> None:
    """Refuse numbers as the targets of a cross entropy: of floats it takes the probabilities of all classes alone.

    It would train on any numbers, silently, and towards nothing that they mean.
    """
    func = loss.func if isinstance(loss, partial) else loss
    if func is not functional.cross_entropy and not isinstance(loss, nn.CrossEntropyLoss):
        return
    for part in targets:
        if isinstance(outputs, torch.Tensor) and isinstance(part, torch.Tensor) and part.is_floating_point():
            _check_distributions(outputs, part)


def _check_distributions(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Refuse targets that are not the probabilities of all classes, up to what a narrow float type rounds."""
    are_scores, first = outputs.ndim > 1 and outputs.shape[1] > 1, 0
    if are_scores and targets.shape[1:] == outputs.shape[1:]:
        off = (targets.sum(dim=1, dtype=torch.float32) - 1).abs() > 0.01
        off |= (targets < 0).any(dim=1)
        if not off.any():
            return
        first = int(off.nonzero()[0, 0])
    is_binary = bool(((targets == 0) | (targets == 1)).all())
    loss = "binary_cross_entropy_with_logits" if is_binary else "mse_loss"
    remedy = f'give loss=torch.nn.functional.{loss} (in a file: model.loss = "{loss}")'
    if are_scores and targets.shape[1:] == outputs.shape[2:] and torch.equal(targets, targets.round()):
        remedy = "give classes as whole numbers, targets.long()"
    raise InputError(
        f"targets are numbers, such as {_shown(targets[first])}, and the loss is cross_entropy, which takes classes, "
        f"or for each example the probabilities of all classes; {remedy}"
    )


def _shown(target: torch.Tensor) -> str:
    """Return the first numbers of a target."""
    listed = ", ".join(f"{number:.3g}" for number in target.flatten()[:3].tolist())
    listed += ", ..." if target.numel() > 3 else ""
    return listed if target.ndim == 0 else f"[{listed}]"


def _check_number(name: str, value: object) -> None:
    """Refuse what a loss or a metric returns if it is not one number."""
    try:
        count = torch.as_tensor(value).numel()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"the {name} returns {type(value).__name__}; return a number") from None
    if count != 1:
        raise InputError(f"the {name} returns {count} numbers; return the mean over the examples")
    if torch.as_tensor(value).is_complex():
        raise InputError(f"the {name} returns a complex number; return a real one, such as its abs()")


def _is_trained(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and (part.is_floating_point() or part.is_complex())


def _with_gradient(part: Any) -> Any:
    """Return a copy as a network gives it in training."""
    return cloned(part).requires_grad_().clone() if _is_trained(part) else cloned(part)


def _same(before: Any, after: Any) -> bool:
    if not isinstance(before, torch.Tensor):
        return True
    one, two = (part.detach().reshape(-1).contiguous() for part in (before, after))
    return before.shape == after.shape and torch.equal(one.view(torch.uint8), two.view(torch.uint8))


def _adds_up(loss: Loss, value: float, outputs: Any, targets: Any) -> bool:
    """Return whether a loss is a sum over examples."""
    if not _are_tensors(outputs, targets) or not math.isfinite(value):
        return False
    try:
        twice = float(loss(torch.cat([outputs, outputs]), torch.cat([targets, targets])))
    except Exception:
        return False  # it takes no such batch
    return value != 0 and math.isclose(twice, 2 * value, rel_tol=1e-4)


def _broadcasts(function: Metric, outputs: Any, targets: Any) -> bool:
    """Return whether a loss of outputs [n, 1] and targets [n], or the other way round, is no mean over examples."""
    if not _are_tensors(outputs, targets):
        return False
    shapes = [[length for length in part.shape[1:] if length != 1] for part in (outputs, targets)]
    if outputs.ndim == targets.ndim or shapes[0] != shapes[1]:
        return False
    generator = torch.Generator().manual_seed(0)
    pair = [torch.rand((3, *part.shape[1:]), generator=generator).to(outputs) for part in (outputs, targets)]
    if not targets.is_floating_point():
        pair[1] = (pair[1] > 0.5).to(targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            whole = float(function(*pair))
            each = [float(function(*(part[row : row + 1] for part in pair))) for row in range(3)]
        except Exception:
            return False  # it takes other numbers than these
    return not math.isclose(whole, sum(each) / 3, rel_tol=1e-3)


def _listed(part: torch.Tensor) -> str:
    return "".join(f", {length}" for length in part.shape[1:])


def takes_floats(function: Loss | Metric, outputs: Any, targets: Tree) -> bool:
    """Return whether a loss that fails takes the same targets as floats."""
    if not isinstance(targets, torch.Tensor) or targets.is_floating_point():
        return False
    try:
        with warnings.catch_warnings(action="ignore"):  # it is a trial: what comes of it is said in a sentence
            function(outputs, targets.to(outputs.dtype))
    except Exception:
        return False
    return True
