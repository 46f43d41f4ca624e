"""A client's examples, for a peer's environment, which has torch and the peer but not fedadmm."""

import torch
from torch.utils.data import TensorDataset
from workloads import Workload


def examples_of(workload: Workload, client: int) -> TensorDataset:
    """Return random examples of MNIST's form: a client's own."""
    generator = torch.Generator().manual_seed(client)
    inputs = torch.randn(workload.examples_per_client, 1, 28, 28, generator=generator)
    return TensorDataset(inputs, torch.randint(0, 10, (len(inputs),), generator=generator))
