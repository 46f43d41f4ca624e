import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedadmm.cli import console
from fedadmm.cli import data as cli_data
from fedadmm.core.errors import InputError
from fedadmm.data import federate, load
from fedadmm.data.shown import Counted, draw_counted
from fedadmm.data.sources import MNIST


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setattr(console.out, "width", 160)


def run(*arguments):
    return CliRunner().invoke(cli_data.app, [str(argument) for argument in arguments])


def test_show_prints_the_statistics_of_the_partition_that_a_run_would_use():
    result = run("show", "digits", "--num-clients", 30, "--seed", 4)
    assert result.exit_code == 0, result.output
    counts = federate(load("digits"), num_clients=30, seed=4).label_counts()
    assert "30 clients, 1,437 training examples" in result.output
    assert "mean 47.90" in result.output  # 1437 / 30
    assert f"classes per client: mean {(counts > 0).sum(axis=1).mean():.2f}" in result.output
    rows = [line.split() for line in result.output.splitlines()]
    third = next(row for row in rows if row[:1] == ["2"])
    assert [int(value) for value in third[1:3]] == [counts[2].sum(), (counts[2] > 0).sum()]
    assert [bar != "·" for bar in third[3]] == (counts[2] > 0).tolist()
    assert "and 10 more" in result.output
    assert "add --out FILE.png" in result.output


def test_show_prints_the_examples_of_targets_that_are_numbers(tmp_path, monkeypatch):
    (tmp_path / "own_numbers.py").write_text(
        "import torch\n"
        "def one():\n    return (torch.zeros(40, 2), torch.arange(40.0)), None\n"
        "def two():\n    return (torch.zeros(40, 2), torch.zeros(40, 2)), None\n"
    )
    monkeypatch.chdir(tmp_path)
    by_size = ("--partition", "shards", "--shards-per-client", 1, "--quantiles", 8, "--num-clients", 4)
    result = run("show", "own_numbers:one", *by_size)
    assert result.exit_code == 0, result.output
    assert "targets are numbers, in fifths: 0 to 7.8, 7.8 to 15.6, 15.6 to 23.4, 23.4" in result.output
    # Ten numbers each, sorted: a client has those of two fifths, or three, of eight each.
    held = {line.split()[3] for line in result.output.splitlines() if line.split()[1:2] == ["10"]}
    assert {"█▂···", "···▂█"} <= held
    result = run("show", "own_numbers:two", "--partition", "iid", "--num-clients", 4)
    assert "examples per client: mean 10.00" in result.output
    assert [line.split() for line in result.output.splitlines() if line.split()[:1] == ["3"]] == [["3", "10"]]


@pytest.mark.slow
def test_show_writes_a_drawing_only_when_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("show", "digits").exit_code == 0
    assert list(tmp_path.iterdir()) == []
    result = run("show", "digits", "--partition", "dirichlet", "--alpha", 0.1, "--out", "figures/clients.png")
    assert result.exit_code == 0, result.output
    assert np.asarray(Image.open(tmp_path / "figures" / "clients.png")).std() > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "digits", "--num-clients", "1000"], "need 2000 shards, more than the 1437 examples"),
        (["show", "digits", "--partition", "natural"], "needs to know who made each example"),
        (["show", "digits", "--out", "clients"], "does not say what to draw; end it in .png"),
        (["show", "digits", "--out", "/dev/null/clients.png"], "cannot write /dev/null/clients.png"),
        (["fetch", "digit"], "no files to fetch for 'digit'"),
    ],
)
def test_a_users_mistake_comes_out_as_an_input_error(arguments, sentence):
    result = run(*arguments)
    assert isinstance(result.exception, InputError)
    assert sentence in str(result.exception)


def test_list_tells_what_is_there_missing_and_damaged(tmp_path):
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").write_bytes(b"damaged")
    result = run("list", "--data-dir", tmp_path)
    assert result.exit_code == 0, result.output
    lines = {line.split("│")[1].strip(): line for line in result.output.splitlines() if line.count("│") > 3}
    assert "there" in lines["digits"]
    assert "3 missing, 1 damaged" in lines["mnist"]
    assert "fedadmm data fetch mnist" in lines["mnist"]
    assert "6 missing" in lines["cifar10"]


@pytest.mark.slow
def test_list_tells_what_is_verified(published):
    result = run("list", "--data-dir", published(*MNIST.files))
    mnist = next(line for line in result.output.splitlines() if " mnist " in line)
    assert "there, verified" in mnist


def test_digits_need_no_fetching():
    result = run("fetch", "digits")
    assert result.exit_code == 0
    assert "nothing to fetch" in result.output


def test_a_drawing_stacks_the_classes_of_each_client():
    counts = np.array([[2, 1, 0], [0, 3, 4]])
    patches = draw_counted(Counted(counts, "class"), title="two clients").axes[0].patches
    # Class after class from the bottom up: tops are the running sums.
    tops = [patch.get_data().values.tolist() for patch in patches]
    assert tops == [[2, 0], [3, 3], [3, 7]]
    bottoms = [patch.get_data().baseline.tolist() for patch in patches]
    assert bottoms == [[0, 0], [2, 0], [3, 3]]
