"""The mean loss of a network over examples as a function of the weights: its value, its gradient and its Hessian."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import nn

from fedadmm.core.algorithm import Vector
from fedadmm.core.errors import InputError, failure
from fedadmm.core.round import Buffers
from fedadmm.data.examples import Examples, Tree, num_rows, shapes
from fedadmm.training.evaluation import Loss, Read, as_it_is, divisor, is_plain_mean, loss_of_each
from fedadmm.training.flat import FlatModel, squared_norm
from fedadmm.training.local import sizes_of_batches
from fedadmm.training.model_checks import explained, loss_failure

CHUNK = 1000  # examples that are in memory at once
DENSE_UP_TO = 200  # parameters whose Hessian is made in full
RESIDUAL = 1e-12  # of conjugate gradients, relative


class Objective:
    """f(w): the mean loss over examples, taken in chunks, and decay/2 |w|^2.

    The network is in the mode that it is found in; with `buffers` it has these, and is in evaluation mode.
    `owner` is whose the examples are, for an error. `read` makes a batch of rows what the model is given.
    With `weights`, one number per example, f is the weighted sum of their losses instead of the mean.
    """

    def __init__(
        self,
        model: FlatModel,
        examples: Examples,
        *,
        loss: Loss,
        decay: float,
        buffers: Buffers | None = None,
        weights: torch.Tensor | None = None,
        chunk: int | None = None,
        owner: str = "the federation",
        read: Read = as_it_is,
    ) -> None:
        self.model, self.examples, self.decay = model, examples, decay
        self._loss, self._losses = loss, loss_of_each(loss)
        self._buffers, self._weights, self._chunk = buffers, weights, chunk or CHUNK
        self._owner, self.num_examples = owner, len(examples.targets)
        self._counts_all = read is as_it_is and is_plain_mean(loss, examples.targets)
        self.read = read
        self.evaluations = 0  # gradients of single examples so far; a product with the Hessian counts as a gradient

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        """Return f(w) and its gradient."""
        loss, gradient = self.loss_and_gradient(w, decay=self.decay)
        return (loss + self.decay / 2 * squared_norm(w) if self.decay else loss), gradient

    def loss_and_gradient(self, w: Vector, *, decay: float) -> tuple[float, Vector]:
        """Return the loss at w without a decay, and the gradient with one."""
        self.model.load(w)
        gradient = decay * w if decay else torch.zeros_like(w)
        return sum(float(loss) * share for loss, share in self.add_gradient(gradient)), gradient

    def add_gradient(self, total: Vector) -> list[tuple[torch.Tensor, float]]:
        """Add the loss's gradient at the model's weights; return the losses of the chunks, with their shares."""
        losses, views = [], self.model.split(total)
        for loss, share in self._chunks():
            torch._foreach_add_(views, self._gradients(loss, self.model.parameters), alpha=share)
            losses.append((loss.detach(), share))
        return losses

    def batch(
        self, inputs: Tree, targets: Tree, parameters: Sequence[nn.Parameter]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the mean loss of a batch at the model's weights, and its gradients by some parameters."""
        loss = self._mean_loss(self._outputs(inputs), targets)
        return loss.detach(), self._gradients(loss, parameters)

    def hessian_product(self, w: Vector, direction: Vector) -> Vector:
        """Return the Hessian at w times a direction."""
        self.model.load(w)
        steps, product = self.model.split(direction), self.decay * direction
        for loss, share in self._chunks():
            slopes = torch.autograd.grad(loss * share, self.model.parameters, create_graph=True)
            along = torch.stack([(slope * step).sum() for slope, step in zip(slopes, steps, strict=True)]).sum()
            product = product + _flat(self._second(along))
        return product

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        """Return x with (H + rho I) x = v, for the Hessian H at w: dense for few parameters."""
        if len(w) > DENSE_UP_TO:
            return conjugate_gradients(lambda x: self.hessian_product(w, x) + rho * x, v, residual=RESIDUAL)
        hessian = self.hessian(w)
        hessian.diagonal().add_(rho)
        return torch.linalg.solve(hessian, v)

    def hessian(self, w: Vector) -> torch.Tensor:
        """Return the Hessian at w, [d, d]."""
        self.model.load(w)
        parameters, identity = self.model.parameters, torch.eye(len(w), dtype=w.dtype, device=w.device)
        hessian = self.decay * identity
        for loss, share in self._chunks():
            slopes = _flat(torch.autograd.grad(loss * share, parameters, create_graph=True))
            rows = torch.autograd.grad(slopes, parameters, identity, is_grads_batched=True)
            hessian.add_(torch.cat([row.reshape(len(w), -1) for row in rows], dim=1))
        self.evaluations += (len(w) - 1) * self.num_examples  # a product for each row
        return hessian

    def has_loss(self, targets: Tree) -> bool:
        """Return whether a batch has a target that the loss does not ignore."""
        return self._counts_all or divisor(self._loss, targets) > 0

    def _chunks(self) -> Iterator[tuple[torch.Tensor, float]]:
        """Yield the loss of each chunk at the model's weights, and what it is multiplied by in f."""
        module, training = self.model.module, self.model.module.training
        if self._buffers is not None:
            self.model.load_buffers(self._buffers)
            module.eval()
        # No chunk of one example where the network cannot train on it.
        join = self.model.needs_two and self._buffers is None
        sizes = sizes_of_batches(self.num_examples, max(self._chunk, 2) if join else self._chunk, join=join)
        inputs, targets = (part.split(sizes) for part in self.examples)
        total = divisor(self._loss, self.examples.targets) or 1
        weights = [None] * len(targets) if self._weights is None else self._weights.split(sizes)
        try:
            for number, (rows, known, some_weights) in enumerate(zip(inputs, targets, weights, strict=True)):
                share = divisor(self._loss, known) / total if some_weights is None else 1.0
                if not share:  # the mean loss of targets that are all ignored is 0 / 0
                    self.evaluations += len(known)
                    continue
                some_inputs, some_targets = self.read(rows, known, 0, number)
                outputs = self._outputs(some_inputs)
                if some_weights is None:
                    yield self._mean_loss(outputs, some_targets), share
                else:
                    yield (self._losses(outputs, some_targets) * some_weights).sum(), share
        finally:
            module.train(training)

    def _outputs(self, inputs: Tree) -> torch.Tensor:
        self.evaluations += num_rows(inputs)
        try:
            outputs: torch.Tensor = self.model(inputs)
        except Exception as error:
            sentence = explained(error, inputs)
            if sentence is None:
                raise failure(f"the model, trained on {shapes(inputs)} of {self._owner},", error) from error
            raise InputError(f"{self._owner} {sentence}") from error
        return outputs

    def _mean_loss(self, outputs: Tree, targets: Tree) -> torch.Tensor:
        try:
            return self._loss(outputs, targets)
        except Exception as error:
            raise loss_failure(error, outputs, targets, owner=self._owner) from error

    def _gradients(self, loss: torch.Tensor, parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, parameters, materialize_grads=True))

    def _second(self, along: torch.Tensor) -> tuple[torch.Tensor, ...]:
        try:
            return torch.autograd.grad(along, self.model.parameters, materialize_grads=True)
        except NotImplementedError as error:
            raise InputError(
                f"torch has no second derivative of the model ({error}); use other layers, such as nn.Embedding and a "
                "mean for nn.EmbeddingBag"
            ) from error


def conjugate_gradients(product: Callable[[Vector], Vector], v: Vector, *, residual: float) -> Vector:
    """Return x with product(x) = v up to a relative residual, for a symmetric and positive definite product."""
    x, rest = torch.zeros_like(v), v
    direction, size = v, v @ v
    enough = residual**2 * size
    for _ in range(10 * len(v)):
        if not size > enough:
            break
        ahead = product(direction)
        length = size / (direction @ ahead)
        x, rest = x + length * direction, rest - length * ahead
        before, size = size, rest @ rest
        direction = rest + size / before * direction
    return x


def _flat(tensors: Iterable[torch.Tensor]) -> Vector:
    return torch.cat([(t.to_dense() if t.is_sparse else t).reshape(-1) for t in tensors])
