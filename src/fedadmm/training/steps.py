"""The step in minibatches: SGD fused with the algorithm's terms, or a torch optimizer that is given their gradient."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError, failure
from fedadmm.training.choices import own_function
from fedadmm.training.flat import split
from fedadmm.training.local import LocalTraining

Scalar = float | torch.Tensor  # the same for all clients, or [K, 1]
Parts = Sequence[torch.Tensor | None]  # one for each part of the weights
Value = TypeVar("Value", float, torch.Tensor, Scalar)


class PlainStep:
    """w <- (1 - lr pull) w - lr (g + constant), in two passes over w, or one where there is no constant."""

    def __init__(self, weights: list[torch.Tensor], learning_rate: float, pull: Scalar, constants: Parts) -> None:
        self.target, self.alpha = weights, -learning_rate
        self._shrink = 1 - learning_rate * pull
        self._shifts = [None if constant is None else -learning_rate * constant for constant in constants]

    def begin(self, rows: int | None = None) -> None:
        """Take the part of the step that needs no gradient."""
        shrink = _first(self._shrink, rows)
        for part, part_shift in zip(self.target, self._shifts, strict=True):
            weights, shift = _first(part, rows), None if part_shift is None else _first(part_shift, rows)
            if isinstance(shrink, torch.Tensor):
                torch.mul(weights, shrink, out=weights)
                if shift is not None:
                    weights.add_(shift)
            elif shift is not None:
                torch.add(shift, weights, alpha=shrink, out=weights)
            elif shrink != 1:
                weights.mul_(shrink)

    def end(self, rows: int | None = None) -> None:
        """Do nothing: the gradient went into the weights."""


class MomentumStep:
    """v <- momentum v + g + pull w + constant;  w <- w - lr v."""

    def __init__(
        self, weights: list[torch.Tensor], learning_rate: float, pull: Scalar, constants: Parts, momentum: float
    ) -> None:
        self.target, self.alpha = [torch.zeros_like(part) for part in weights], 1.0  # the velocity
        self._weights, self._learning_rate, self._pull = weights, learning_rate, pull
        self._constants, self._momentum = constants, momentum

    def begin(self, rows: int | None = None) -> None:
        """Add to the velocity all but the gradient."""
        pull = _first(self._pull, rows)
        for part, velocity_part, constant in zip(self._weights, self.target, self._constants, strict=True):
            weights, velocity = _first(part, rows), _first(velocity_part, rows)
            velocity.mul_(self._momentum)
            if isinstance(pull, torch.Tensor):
                velocity.add_(pull * weights)
            elif pull:
                velocity.add_(weights, alpha=pull)
            if constant is not None:
                velocity.add_(_first(constant, rows))

    def end(self, rows: int | None = None) -> None:
        """Move the weights along the velocity."""
        for weights, velocity in zip(self._weights, self.target, strict=True):
            _first(weights, rows).add_(_first(velocity, rows), alpha=-self._learning_rate)


def step_rule(
    weights: list[torch.Tensor], *, learning_rate: float, pull: Scalar, constants: Parts | None, momentum: float
) -> PlainStep | MomentumStep:
    """Return the step of SGD on f(w) + <constant, w> + pull/2 |w|^2, which changes `weights` in place."""
    constants = constants or [None] * len(weights)
    if momentum:
        return MomentumStep(weights, learning_rate, pull, constants, momentum)
    return PlainStep(weights, learning_rate, pull, constants)


def clipped(gradients: list[torch.Tensor], bound: float) -> list[torch.Tensor]:
    """Return one client's gradients, shortened to a norm of `bound` if they are longer, as clip_grad_norm_ does."""
    gradients = [gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, clip_factor(norm, bound))
    return gradients


def clip_factor(norms: torch.Tensor, bound: float) -> torch.Tensor:
    """Return what gradients of these norms are multiplied by."""
    return (bound / (norms + 1e-6)).clamp(max=1.0)  # 1e-6 as in torch.nn.utils.clip_grad_norm_


def _first(value: Value, rows: int | None) -> Value:
    """Return the rows of the first clients of what is stacked; what all clients share stays as it is."""
    return value[:rows] if rows is not None and isinstance(value, torch.Tensor) and value.ndim == 2 else value


class Part(NamedTuple):
    """Parameters that are views of one vector w, and the terms <constant, w> + pull/2 |w|^2 beside the loss."""

    parameters: list[nn.Parameter]
    weights: Vector  # [d]
    pull: float
    constant: Vector | None

    def split(self, vector: Vector) -> list[torch.Tensor]:
        """Return views of a flat vector in the shapes of the parameters."""
        return split(vector, self.parameters)


# Of parameters: the mean loss of a batch, and its gradients.
BatchGradients = Callable[[list[nn.Parameter]], tuple[torch.Tensor, list[torch.Tensor]]]


class FusedSGD:
    """Steps of SGD, with or without momentum: the gradient is added straight into weights or velocity."""

    def __init__(self, parts: Sequence[Part], *, learning_rate: float, momentum: float) -> None:
        self._steps = []
        for part in parts:
            constants = None if part.constant is None else [part.constant]
            step = step_rule(
                [part.weights], learning_rate=learning_rate, pull=part.pull, constants=constants, momentum=momentum
            )
            self._steps.append((part.parameters, step, part.split(step.target[0])))

    def take(self, gradients_of: BatchGradients, trained: slice) -> torch.Tensor:
        """Take a step with these parts, and return the loss before it."""
        steps = self._steps[trained]
        loss, gradients = gradients_of([parameter for parameters, *_ in steps for parameter in parameters])
        for _, step, target in steps:
            own, gradients = gradients[: len(target)], gradients[len(target) :]
            step.begin()
            torch._foreach_add_(target, own, alpha=step.alpha)
            step.end()
        return loss


class OptimizerSteps:
    """Steps of a torch optimizer, whose state is new; it sees the gradients of the loss and of the parts' terms."""

    def __init__(self, parts: Sequence[Part], *, local: LocalTraining, learning_rate: float, num_steps: int) -> None:
        self._parts, self._local, self._num_steps, self._taken = parts, local, num_steps, 0
        parameters = [parameter for part in parts for parameter in part.parameters]
        self._optimizer = make_optimizer(local, parameters, learning_rate=learning_rate)
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        # In the shapes of the parameters, because an optimizer may look at a layer as a whole.
        self._constants = [None if part.constant is None else part.split(part.constant) for part in parts]

    def take(self, gradients_of: BatchGradients, trained: slice) -> torch.Tensor:
        """Take a step with these parts, and return the loss before it."""
        if self._local.warmup is not None or self._local.rate_decay is not None:  # else a user's optimizer may rule it
            factor = rate_factor(self._local, self._taken, num_steps=self._num_steps)
            for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor
        losses: list[torch.Tensor] = []

        own_failures: list[Exception] = []

        def closure() -> Any:
            try:
                with torch.enable_grad():
                    losses.append(self._load_gradients(gradients_of, trained))
            except Exception as error:
                own_failures.append(error)
                raise
            return losses[-1]

        try:
            self._optimizer.step(closure)  # as some ask for the gradient at several points
        except Exception as error:
            raise error if error in own_failures else self._failure(error) from error
        self._optimizer.zero_grad()  # what is not trained at the next step has none
        self._taken += 1
        return losses[0]

    def _failure(self, error: Exception) -> InputError:
        """Return what is wrong with an optimizer whose step fails."""
        remedy = "correct it, or use another"
        if "dense gradients" in str(error):
            remedy = 'it takes sparse gradients, and those of the model are dense; use another, such as "adam"'
        return failure(f"the step of local.optimizer={self._local.optimizer!r}", error, remedy=remedy)

    def _load_gradients(self, gradients_of: BatchGradients, trained: slice) -> torch.Tensor:
        parts = self._parts[trained]
        loss, gradients = gradients_of([parameter for part in parts for parameter in part.parameters])
        for part, constants in zip(parts, self._constants[trained], strict=True):
            own, gradients = gradients[: len(part.parameters)], gradients[len(part.parameters) :]
            if part.pull:
                own = list(torch._foreach_add(own, part.split(part.weights), alpha=part.pull))
            if constants is not None:
                own = list(torch._foreach_add(own, constants))
            for parameter, gradient in zip(part.parameters, own, strict=True):
                parameter.grad = gradient
        return loss


def make_optimizer(
    local: LocalTraining, parameters: list[nn.Parameter], *, learning_rate: float
) -> torch.optim.Optimizer:
    """Return the optimizer that [local] names, or SGD; refuse what cannot be made, or is none."""
    name, options = local.optimizer or "sgd", dict(local.optimizer_options or {})
    known: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "sgd": (torch.optim.SGD, {"momentum": local.momentum}),
        "adam": (torch.optim.Adam, {}),
        "adamw": (torch.optim.AdamW, {"weight_decay": local.weight_decay}),
    }
    form = "(parameters, lr) that returns a torch.optim.Optimizer"
    make, usual = known[name] if name in known else (own_function(name, what="optimizer", form=form), {})
    try:
        optimizer = make(parameters, lr=learning_rate, **usual | options)
    except Exception as error:
        given = f"lr={learning_rate:g} and {options}"
        raise InputError(f"optimizer {name!r} cannot be made with {given}: {error}; use its own options") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(f"optimizer {name!r} makes {type(optimizer).__name__}; make a torch.optim.Optimizer")
    if not all("lr" in group for group in optimizer.param_groups):
        raise InputError(f"optimizer {name!r} has no lr in its parameter groups; pass it to Optimizer.__init__")
    return optimizer


def check_optimizer(local: LocalTraining) -> None:
    """Refuse an optimizer that cannot be made, before any round.

    The first one of a process imports torch's compiler, a second of work that processes forked later are spared.
    """
    if not local.is_sgd:
        make_optimizer(local, [nn.Parameter(torch.zeros(2, 2))], learning_rate=local.learning_rate_at(1))


def rate_factor(local: LocalTraining, step: int, *, num_steps: int) -> float:
    """Return what the learning rate is multiplied by at a step of a visit, counted from 0."""
    rising = round((local.warmup or 0.0) * num_steps)
    if step < rising:
        return (step + 1) / rising
    if local.rate_decay is None:
        return 1.0
    done = min(1.0, (step - rising) / max(1, num_steps - rising))
    return 1 - done if local.rate_decay == "linear" else (1 + math.cos(math.pi * done)) / 2
