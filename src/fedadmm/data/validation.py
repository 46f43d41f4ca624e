"""A validation split, so that what is tuned is never judged on the test examples."""

import numpy as np
import torch

from fedadmm.core.errors import InputError
from fedadmm.core.seeds import stream
from fedadmm.data.datasets import Dataset
from fedadmm.data.examples import Examples


def hold_out(dataset: Dataset, *, fraction: float, seed: int) -> Dataset:
    """Return the dataset with this fraction of its training examples in the place of its test examples."""
    total = len(dataset.train.targets)
    size = round(fraction * total)
    if not 0 < size < total:
        raise InputError(f"validation={fraction} holds out {size} of {total} examples; use a fraction such as 0.2")
    order = torch.from_numpy(stream(seed, "validation").permutation(total))
    held, kept = order[:size], np.sort(order[size:])
    return dataset._replace(
        train=Examples(dataset.train.inputs[kept], dataset.train.targets[kept]),
        test=Examples(dataset.train.inputs[held], dataset.train.targets[held]),
        groups=None if dataset.groups is None else dataset.groups[kept],
    )
