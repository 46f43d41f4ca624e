"""The network of a federation, as the server and every node build it: from the same function and the same seed."""

from collections.abc import Callable

from torch import nn

from fedadmm.core.seeds import torch_seed
from fedadmm.flower.settings import FederationSettings
from fedadmm.training.models import build

ModelFunction = Callable[[], nn.Module]


def initial_model(model: ModelFunction, settings: FederationSettings) -> nn.Module:
    """Return the network with the weights of theta^0."""
    return build(model, input_shape=(), num_classes=0, seed=torch_seed(settings.seed, "model"))
