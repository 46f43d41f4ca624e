"""The one file that is yours: a model, and how a node loads its data."""

from typing import Any

import torch
from flwr.app import Context
from torch import nn

import fedadmm
from fedadmm.flower import client_of


def model() -> nn.Module:
    """Return the network."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))


def data(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this node's examples, (inputs, targets); here, its share of scikit-learn's digits."""
    config: Any = context.node_config | context.run_config
    digits = fedadmm.federate(
        fedadmm.load("digits"), num_clients=config["num-clients"], partition="iid", seed=config["seed"]
    )
    return digits.client(client_of(context))


def test() -> tuple[torch.Tensor, torch.Tensor]:
    """Return examples on which the server evaluates its model."""
    return fedadmm.load("digits").test
