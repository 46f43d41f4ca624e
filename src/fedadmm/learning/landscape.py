"""One client's objective as a function of the weights: its value, its gradient, and products with its Hessian."""

from collections.abc import Iterator

import torch

from fedadmm.core.algorithm import Vector
from fedadmm.core.round import Buffers
from fedadmm.data.examples import Examples
from fedadmm.learning.evaluation import BATCH, Loss
from fedadmm.learning.flat import FlatModel, channels_last


class Landscape:
    """The mean loss over a client's examples and decay/2 |w|^2, with the network in evaluation mode."""

    def __init__(
        self, model: FlatModel, examples: Examples, *, loss: Loss, decay: float, buffers: Buffers
    ) -> None:
        self.examples, self.decay = examples, decay
        self._model, self._loss, self._buffers = model, loss, buffers

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        """Return f(w) and its gradient."""
        value, gradient = self.decay / 2 * float(w.double().square().sum()), self.decay * w
        for part in self._parts(w):
            gradient = gradient + self._flat(torch.autograd.grad(part, self._model.parameters))
            value += float(part.detach())
        return value, gradient

    def hessian_product(self, w: Vector, direction: Vector) -> Vector:
        """Return the Hessian at w times a direction."""
        steps = self._model.split(direction)
        product = self.decay * direction
        for part in self._parts(w):
            slopes = torch.autograd.grad(part, self._model.parameters, create_graph=True)
            along = torch.stack(
                [(slope * step).sum() for slope, step in zip(slopes, steps, strict=True)]
            ).sum()
            turned = torch.autograd.grad(along, self._model.parameters, materialize_grads=True)
            product = product + self._flat(turned)
        return product

    def _parts(self, w: Vector) -> Iterator[torch.Tensor]:
        module, num_examples = self._model.module, len(self.examples.targets)
        self._model.load(w)
        self._model.load_buffers(self._buffers)
        training = module.training
        module.eval()
        try:
            for inputs, targets in zip(*(part.split(BATCH) for part in self.examples), strict=True):
                yield self._loss(module(channels_last(inputs)), targets) * (len(targets) / num_examples)
        finally:
            module.train(training)

    def _flat(self, tensors: tuple[torch.Tensor, ...]) -> Vector:
        return torch.cat([tensor.reshape(-1) for tensor in tensors])
