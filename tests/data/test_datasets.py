import hashlib
import sys

import numpy as np
import pytest
import torch

from fedadmm.core.errors import InputError
from fedadmm.data import load
from fedadmm.data.datasets import MOMENTS, read_cifar
from fedadmm.data.files import DataFile, present
from fedadmm.data.sources import FASHION_MNIST, MNIST, QMNIST, QMNIST_TEXT, SOURCES, Source

SHAPES = {
    "digits": (1437, 360, (1, 8, 8)),
    "mnist": (60_000, 10_000, (1, 28, 28)),
    "fmnist": (60_000, 10_000, (1, 28, 28)),
    "cifar10": (50_000, 10_000, (3, 32, 32)),
}


@pytest.fixture(params=SHAPES)
def available(request, published):
    """Return each dataset whose files are at hand, and its folder."""
    if request.param == "digits":
        return "digits", None
    return request.param, published(*SOURCES[request.param].files)


@pytest.mark.slow
def test_the_written_moments_are_those_of_the_training_set(available):
    name, folder = available
    data = load(name, data_dir=folder, normalisation="none")
    num_train, num_test, shape = SHAPES[name]
    assert data.train.inputs.shape == (num_train, *shape)
    assert data.test.inputs.shape == (num_test, *shape)
    assert data.train.inputs.dtype == torch.float32
    assert data.train.targets.dtype == torch.int64
    assert set(data.train.targets.tolist()) == set(range(10))
    for channel in range(shape[0]):
        # Whole pixel values, so that the sums are exact.
        white = 16 if name == "digits" else 255
        pixels = (data.train.inputs[:, channel] * white).round_().double()
        mean = pixels.mean().item() / white
        std = (pixels.square_().mean().item() / white**2 - mean**2) ** 0.5
        assert MOMENTS["dataset"][name]["mean"][channel] == pytest.approx(mean, abs=1e-9)
        assert MOMENTS["dataset"][name]["std"][channel] == pytest.approx(std, abs=1e-9)


def test_normalisation_is_the_datasets_own_by_default():
    inputs = load("digits").train.inputs.double()
    assert inputs.mean().item() == pytest.approx(0, abs=1e-6)
    assert inputs.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert torch.equal(load("digits", normalisation="dataset").train.inputs, load("digits").train.inputs)


def test_the_test_set_is_normalised_like_the_training_set():
    plain, own = load("digits", normalisation="none").test.inputs, load("digits").test.inputs
    mean, std = (MOMENTS["dataset"]["digits"][key][0] for key in ("mean", "std"))
    assert torch.allclose(own, (plain - mean) / std, atol=1e-6)


@pytest.mark.slow
def test_released_normalisation_uses_mnists_moments_for_fashion_mnist(published):
    inputs = load("fmnist", data_dir=published(*FASHION_MNIST.files), normalisation="released").test.inputs
    # Black is (0 - 0.1307) / 0.3081 and white (1 - 0.1307) / 0.3081.
    assert inputs.min().item() == pytest.approx(-0.424213, abs=1e-5)
    assert inputs.max().item() == pytest.approx(2.821487, abs=1e-5)


def test_digits_are_split_without_loss_or_overlap():
    from sklearn.datasets import load_digits

    data = load("digits", normalisation="none")
    together = torch.cat([data.train.inputs, data.test.inputs]).mul(16).round().flatten(1).numpy()
    ours = sorted(map(bytes, together.astype(np.uint8)))
    assert ours == sorted(map(bytes, load_digits().data.astype(np.uint8)))
    label_of = dict(zip(map(bytes, load_digits().data.astype(np.uint8)), load_digits().target, strict=True))
    labels = torch.cat([data.train.targets, data.test.targets]).tolist()
    assert labels == [label_of[bytes(image)] for image in together.astype(np.uint8)]


@pytest.mark.slow
def test_mnist_has_539_writers(published):
    groups = load("mnist", data_dir=published(*MNIST.files, *QMNIST.files)).groups
    writers, counts = np.unique(groups, return_counts=True)
    assert groups.shape == (60_000,)
    assert groups.dtype == np.int32  # in the byte order of this machine, whatever that of the file
    assert (len(writers), counts.min(), counts.max()) == (539, 19, 131)


@pytest.mark.slow
def test_writers_are_the_same_from_text(published, tmp_path):
    folder = published(*MNIST.files, *QMNIST.files, QMNIST_TEXT)
    (tmp_path / "MNIST").symlink_to(folder / "MNIST")
    (tmp_path / "QMNIST" / "raw").mkdir(parents=True)
    text = present(QMNIST_TEXT, folder=folder)
    (tmp_path / "QMNIST" / "raw" / text.name).symlink_to(text)
    expected = load("mnist", data_dir=folder).groups
    assert np.array_equal(load("mnist", data_dir=tmp_path).groups, expected)


def test_cifar_batches_are_read_channels_first_with_the_last_for_testing(tmp_path):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(3, 2, 3, 32, 32), dtype=np.uint8)  # [batch, image, channel, ...]
    files = []
    for batch in range(3):
        content = b"".join(bytes([batch]) + image.tobytes() for image in images[batch])
        (tmp_path / f"{batch}.bin").write_bytes(content)
        files.append(DataFile(f"{batch}.bin", hashlib.sha256(content).hexdigest()))
    train, test = read_cifar(Source("cifar", tuple(files), ()), folder=tmp_path)
    assert train.targets.tolist() == [0, 0, 1, 1]
    assert test.targets.tolist() == [2, 2]
    assert np.array_equal((train.inputs * 255).round().numpy(), images[:2].reshape(4, 3, 32, 32))
    assert np.array_equal((test.inputs * 255).round().numpy(), images[2])


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Return a function that writes a user's module into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


def test_a_users_function_gives_train_and_test(beside):
    beside("own_data", "import numpy as np\ndef three():\n    return (np.ones((2, 4)), np.array([0, 2])), None\n")
    data = load("own_data:three")
    assert data.train.inputs.tolist() == [[1.0] * 4] * 2
    assert data.test is None
    assert data.num_classes == 3


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("minst", {}, "there is no dataset 'minst'; use digits, mnist, fmnist, cifar10, text or"),
        ("digits", {"normalisation": "released"}, 'no normalisation for digits; use "dataset" or "none"'),
        ("digits", {"normalisation": "zscore"}, "there is no normalisation 'zscore'; use"),
        ("odd_data:number", {}, 'data "odd_data:number" is of type int; name a function'),
        ("odd_data:nothing", {}, r'data "odd_data:nothing" returned NoneType; return \(train, test\)'),
        ("odd_data:nothing", {"normalisation": "dataset"}, "normalise inside the function instead"),
    ],
)
def test_unusable_names_and_normalisations_are_refused(beside, name, options, sentence):
    beside("odd_data", "number = 3\ndef nothing():\n    pass\n")
    with pytest.raises(InputError, match=sentence):
        load(name, **options)


def test_missing_mnist_names_the_file_and_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDADMM_DATA", str(tmp_path))
    with pytest.raises(InputError, match="train-images-idx3-ubyte is missing; run `fedadmm data fetch mnist`"):
        load("mnist")
