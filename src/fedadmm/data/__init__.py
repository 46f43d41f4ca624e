"""Datasets as tensors, where their files come from, and how they are dealt to clients."""

from fedadmm.data.datasets import DATASETS, Dataset, load, make_dataset
from fedadmm.data.examples import Examples, as_examples
from fedadmm.data.federated import PARTITIONS, PartitionedData, federate
from fedadmm.data.files import data_folder

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Dataset",
    "Examples",
    "PartitionedData",
    "as_examples",
    "data_folder",
    "federate",
    "load",
    "make_dataset",
]
