import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedadmm
from fedadmm.config.plans import load_plan
from fedadmm.core.errors import InputError
from fedadmm.data import Examples, federate, load
from fedadmm.data.text import LARGEST, LENGTH, NUM_FILES, SMALLEST, corpus_digest, read_text
from fedadmm.runs.runner import identity_of
from fedadmm.training.models import initial_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of 52 files, one of them short, and one that is private."""
    for number in range(NUM_FILES):
        (tmp_path / f"m{number:02}.py").write_bytes(bytes([number]) * (SMALLEST + 65 * number))
    (tmp_path / "a.py").write_bytes(b"short")
    (tmp_path / "_a.py").write_bytes(b"private" * SMALLEST)
    return tmp_path


def test_each_target_is_the_byte_after_its_place(tmp_path):
    for number in range(NUM_FILES):
        (tmp_path / f"m{number:02}.py").write_bytes(bytes(place % 251 for place in range(SMALLEST)))
    text = read_text(tmp_path)
    assert text.train.inputs[1, :3].tolist() == [64, 65, 66]
    assert text.train.targets[1, :3].tolist() == [65, 66, 67]
    for part in (text.train, text.test):
        assert torch.equal(part.inputs[:, 1:], part.targets[:, :-1])
        assert torch.equal((part.inputs + 1) % 251, part.targets)


def test_a_client_has_one_file_of_which_the_end_is_held_out(folder):
    text = read_text(folder)
    # Of 8,192 + 65 i bytes, one is only a target: (8,191 + 65 i) // 64 windows, of which a tenth is for testing.
    windows = [(SMALLEST - 1 + 65 * i) // LENGTH for i in range(NUM_FILES)]
    held = [round(0.1 * number) for number in windows]
    sizes = [number - out for number, out in zip(windows, held, strict=True)]
    assert [int((text.files == i).sum()) for i in range(NUM_FILES)] == sizes
    assert torch.equal(text.train.inputs, torch.from_numpy(text.files)[:, None].expand(-1, LENGTH))
    assert len(text.test.targets) == sum(held)


def test_the_text_is_the_first_long_modules_of_the_standard_library():
    contents = [path.read_bytes() for path in sorted(Path(hashlib.__file__).parent.glob("[a-z]*.py"))]
    contents = b"".join([content[:LARGEST] for content in contents if len(content) >= SMALLEST][:50])
    assert corpus_digest() == hashlib.sha256(contents).hexdigest()[:16]
    data = federate(load("text"), num_clients=None, partition="natural", seed=0)
    assert (data.num_clients, data.num_classes) == (50, 256)
    assert data.label_counts().sum() == 64 * data.num_examples.sum()


def test_a_run_over_text_remembers_which_text_it_was():
    about = identity_of(load_plan("text").experiment(), arithmetic="exact")
    assert about["text"] == corpus_digest()
    assert "text" not in identity_of(load_plan("digits").experiment(), arithmetic="exact")


def test_a_library_without_source_files_gets_a_sentence(tmp_path):
    with pytest.raises(InputError, match="has 0 source files of 8,192 bytes or more, and the text is made of 50"):
        read_text(tmp_path)


@pytest.mark.parametrize("partition", ["shards", "dirichlet", "imbalanced"])
def test_targets_with_more_than_one_class_an_example_cannot_be_dealt_by_class(partition):
    with pytest.raises(InputError, match=f'"{partition}" deals by one class an example, and targets have shape'):
        federate(load("text"), num_clients=4, partition=partition, seed=0)


def test_the_language_model_sees_only_the_bytes_before_and_is_scored_at_every_place():
    module = initial_model("gru", seed=0, num_classes=256, options={"width": 8})
    tokens = torch.arange(12).view(1, 12)
    changed = tokens.clone()
    changed[0, 6] = 99
    before, after = module(tokens), module(changed)
    assert before.shape == (1, 256, 12)
    # An embedding and a last layer of 256 x 8, and three gates of 8 x (8 + 8 weights and 2 biases).
    assert sum(p.numel() for p in module.parameters()) == 256 * 8 + 3 * 8 * (8 + 8 + 2) + 256 * 8 + 256
    assert torch.equal(before[..., :6], after[..., :6])
    assert not torch.equal(before[..., 6], after[..., 6])


@pytest.mark.slow
def test_accuracy_and_loss_are_means_over_all_places():
    data = federate(load("text"), num_clients=None, partition="natural", seed=0)
    data = replace(data, inputs=data.inputs[:40], targets=data.targets[:40], offsets=np.array([0, 20, 40]))
    data = replace(data, test=Examples(*(part[:50] for part in data.test)))
    local = fedadmm.LocalTraining(batch_size=8, learning_rate=1.0)
    runs = [
        fedadmm.simulate(
            fedadmm.FedAvg(), model="gru", data=data, rounds=1, participation=1.0, local=local, engine=engine
        )
        for engine in ("serial", "workers")
    ]
    assert torch.equal(runs[0].theta, runs[1].theta)
    outputs = runs[0].model().eval()(data.test.inputs).detach()
    right = outputs.argmax(dim=1) == data.test.targets
    record = runs[0].history[-1]
    assert record.accuracy == pytest.approx(float(right.double().mean()), abs=1e-6)
    loss = torch.nn.functional.cross_entropy(outputs.transpose(1, 2).reshape(-1, 256), data.test.targets.flatten())
    assert record.loss == pytest.approx(float(loss), rel=1e-5)
