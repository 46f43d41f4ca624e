"""Datasets as tensors, where their files come from, and how they are dealt to clients."""

from fedadmm.data.datasets import Dataset, load, make_dataset
from fedadmm.data.examples import Examples
from fedadmm.data.federated import PARTITIONS, PartitionedData, federate

__all__ = ["PARTITIONS", "Dataset", "Examples", "PartitionedData", "federate", "load", "make_dataset"]
