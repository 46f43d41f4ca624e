import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from fedadmm.core.errors import InputError
from fedadmm.data import Examples, make_dataset
from fedadmm.data.examples import as_examples


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def test_arrays_tensors_and_datasets_give_the_same_examples():
    inputs, targets = np.arange(6.0).reshape(3, 2), np.array([2, 0, 1], dtype=np.uint8)
    expected = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    tensors = torch.from_numpy(inputs), torch.from_numpy(targets)
    pairs = [(row, int(target)) for row, target in zip(inputs, targets, strict=True)]
    for source in [(inputs, targets), tensors, TensorDataset(*tensors), Items(pairs)]:
        examples = as_examples(source)
        assert examples.inputs.dtype == torch.float32
        assert examples.targets.dtype == torch.int64
        assert torch.equal(examples.inputs, expected)
        assert examples.targets.tolist() == [2, 0, 1]


def test_examples_do_not_share_memory_with_the_users_array():
    inputs = np.zeros((1, 2), dtype=np.float32)
    examples = as_examples((inputs, np.array([0])))
    inputs[:] = 7
    assert examples.inputs.sum() == 0


def test_examples_keep_the_types_that_they_have():
    tokens = Examples(torch.tensor([[5, 6]]), torch.tensor([0]))
    assert as_examples(tokens).inputs.dtype == torch.int64


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *((kind, torch.int64) for kind in ("int16", "int32", "int64")),
        *((kind, torch.float32) for kind in ("bool", "uint8", "int8", "float16", "float32", "float64")),
    ],
)
def test_whole_inputs_stay_whole_and_all_others_become_floats(given, kept):
    inputs, targets = np.array([[0, 1], [1, 0]]).astype(given), np.array([0, 1])
    tensors = torch.from_numpy(inputs), torch.from_numpy(targets)
    for source in [(inputs, targets), tensors, TensorDataset(*tensors)]:
        examples = as_examples(source)
        assert examples.inputs.dtype == kept
        assert examples.inputs.tolist() == [[0, 1], [1, 0]]


def test_fractional_targets_stay_numbers():
    data = make_dataset((np.zeros((2, 1)), np.array([0.5, 1.5])))
    assert data.train.targets.dtype == torch.float32
    assert data.num_classes == 0


def test_classes_are_counted_over_train_and_test():
    data = make_dataset((np.zeros((2, 1)), np.array([0, 1])), test=(np.zeros((1, 1)), np.array([4])))
    assert data.num_classes == 5


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(1), 0


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ((np.zeros((3, 2)), np.zeros(2, int)), "3 inputs and 2 targets; give one target for each input"),
        ((np.zeros((0, 2)), np.zeros(0, int)), "data with 0 examples; give at least one"),
        ((np.zeros((3, 2)), np.array(1)), r"shapes \(3, 2\) and \(\); give"),
        ((np.zeros((1, 2)), ["cat"]), "targets of type list; give a tensor or a numpy array"),
        ((np.zeros((1, 2)), np.array(["cat"])), "targets of type an array of <U3; give"),
        (7, "data of type int; give a pair"),
        (Items([]), "Items is empty; give at least one example"),
        (Items([torch.zeros(2)]), r"item 0 of Items is of type Tensor; return \(input, target\)"),
        (Items([("a picture", 0)]), "the input of item 0 of Items is of type str; turn it into a tensor"),
        (Items([(torch.zeros(2), 0), (torch.zeros(3), 0)]), r"different shapes, such as \[\(2,\), \(3,\)\]"),
        (Endless(), "Endless has no length; give a torch Dataset with __len__"),
    ],
)
def test_unusable_data_is_refused_with_the_remedy(source, sentence):
    with pytest.raises(InputError, match=sentence):
        as_examples(source)


def test_negative_classes_are_refused():
    with pytest.raises(InputError, match="a target is -1; number the classes from 0"):
        make_dataset((np.zeros((2, 1)), np.array([-1, 1])))


def test_groups_must_match_the_examples():
    with pytest.raises(InputError, match="1 groups for 2 training examples"):
        make_dataset((np.zeros((2, 1)), np.array([0, 1])), groups=np.array([0]))
