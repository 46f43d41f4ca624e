"""One client's objective as a function of the weights: its value, its gradient, and products with its Hessian."""

from collections.abc import Iterator

import torch

from fedadmm.core.algorithm import Vector
from fedadmm.core.round import Buffers
from fedadmm.data.examples import Examples
from fedadmm.training import derivatives
from fedadmm.training.evaluation import Loss, batches
from fedadmm.training.flat import FlatModel, channels_last


class Landscape:
    """The mean loss over a client's examples and decay/2 |w|^2, with the network in evaluation mode."""

    def __init__(self, model: FlatModel, examples: Examples, *, loss: Loss, decay: float, buffers: Buffers) -> None:
        self.examples, self.decay = examples, decay
        self._model, self._loss, self._buffers = model, loss, buffers

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        """Return f(w) and its gradient."""
        ridge = self.decay / 2 * float(w.double().square().sum()), self.decay * w
        return derivatives.value_and_gradient(self._model, self._parts(w), start=ridge)

    def hessian_product(self, w: Vector, direction: Vector) -> Vector:
        """Return the Hessian at w times a direction."""
        return derivatives.hessian_product(self._model, self._parts(w), direction=direction, l2=self.decay)

    def _parts(self, w: Vector) -> Iterator[torch.Tensor]:
        module, num_examples = self._model.module, len(self.examples.targets)
        self._model.load(w)
        self._model.load_buffers(self._buffers)
        training = module.training
        module.eval()
        try:
            for inputs, targets in batches(self.examples):
                yield self._loss(module(channels_last(inputs)), targets) * (len(targets) / num_examples)
        finally:
            module.train(training)
