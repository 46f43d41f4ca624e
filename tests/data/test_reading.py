"""Data that is read batch by batch, and inputs in tuples and dicts."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, IterableDataset, Subset

import fedadmm
from fedadmm.algorithms import ALGORITHMS
from fedadmm.core.errors import InputError
from fedadmm.data import federate, make_dataset

INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
TARGETS = (INPUTS[:, 0] > 0).long()


class Items(Dataset[Any]):
    """The examples above, with noise that a function draws."""

    def __init__(self, draw: Any = lambda: 0.0) -> None:
        self.draw, self.read = draw, 0

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        self.read += 1
        return INPUTS[row] + self.draw(), int(TARGETS[row])


def run(dataset: Any, model: Any = None, *, engine: str = "serial", rounds: int = 2, **options: Any) -> Any:
    """Return the result of a few rounds over four clients."""
    data = federate(dataset, num_clients=4, partition=options.pop("partition", "iid"), seed=0)
    local = options.pop("local", fedadmm.LocalTraining(batch_size=4, epochs=2, learning_rate=0.1))
    settings = {"participation": 0.5, "seed": 1, "local": local, "rounds": rounds, "engine": engine, **options}
    return fedadmm.simulate(fedadmm.FedAvg(), model=model or nn.Linear(4, 2), data=data, **settings)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 2)


@pytest.mark.slow
def test_a_lazy_dataset_trains_to_the_bytes_of_the_same_data_in_memory(model):
    whole = run(make_dataset((INPUTS, TARGETS), (INPUTS, TARGETS)), model)
    for engine in ("serial", "workers"):
        lazy = run(make_dataset(Items(), Items(), lazy=True), model, engine=engine)
        assert torch.equal(lazy.theta, whole.theta)
        assert [record.accuracy for record in lazy.history] == [record.accuracy for record in whole.history]
        assert lazy.history[-1].loss == pytest.approx(whole.history[-1].loss, rel=1e-6)  # it is read in smaller batches


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.randn(4), lambda: torch.as_tensor(np.random.rand()).float(), lambda: random.random()],  # noqa: NPY002
)
def test_random_transforms_are_drawn_anew_in_each_epoch_and_the_same_on_serial_and_workers(draw, model):
    dataset = make_dataset(Items(draw), (INPUTS, TARGETS))
    assert dataset.reader is not None
    assert dataset.num_classes == 2
    rows = torch.arange(3)
    first, again, other = (dataset.reader.read(rows, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    runs = [run(dataset, model, engine=engine, rounds=1) for engine in ("serial", "workers")]
    assert torch.equal(runs[0].theta, runs[1].theta)
    frozen = run(make_dataset(Items(draw), (INPUTS, TARGETS), lazy=False), model, rounds=1)
    assert not torch.equal(frozen.theta, runs[0].theta)


def test_reading_leaves_the_users_random_numbers_alone():
    dataset = make_dataset(Items(lambda: torch.randn(4)))
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    dataset.reader.read(torch.arange(3), seed=0)
    assert torch.equal(torch.rand(2), expected)


def test_a_dataset_that_draws_from_a_generator_of_its_own_is_refused():
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(InputError, match="item 0 of Items is another one whenever it is read, and draws from a gen"):
        make_dataset(Items(lambda: torch.randn(4, generator=generator)))


class Two(nn.Module):
    """Two inputs, by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.layer(torch.cat([left, right], dim=1))


class Whole(Two):
    """The same two, as they are given."""

    def forward(self, both: Any) -> Tensor:  # type: ignore[override]
        left, right = both.values() if isinstance(both, dict) else both
        return super().forward(left, right)


@pytest.mark.parametrize("kind", [Two, Whole])
@pytest.mark.parametrize("named", [True, False])
def test_inputs_in_tuples_and_dicts_train_to_the_bytes_of_one_tensor(kind, named, model):
    parts = {"left": INPUTS[:, :2], "right": INPUTS[:, 2:].numpy()}
    inputs = parts if named else tuple(parts.values())
    network = kind()
    network.layer.load_state_dict(model.state_dict())
    whole = run(make_dataset((INPUTS, TARGETS), (INPUTS, TARGETS)), model)
    dataset = make_dataset((inputs, TARGETS), (inputs, TARGETS))
    for engine in ("serial", "workers"):
        found = run(dataset, network, engine=engine, partition="iid")
        assert torch.equal(found.theta, whole.theta)
        assert found.history[-1].accuracy == whole.history[-1].accuracy
    assert federate(dataset, num_clients=2, partition="shards", seed=0).label_counts().sum() == 40
    with pytest.raises(InputError, match="a stack has all inputs as one tensor"):
        run(dataset, network, engine="stacked")


@pytest.mark.slow
def test_a_collate_of_the_users_makes_batches_of_items_of_any_length():
    class Lines(Items):
        def __getitem__(self, row: int) -> Any:
            return torch.arange(1 + row % 5), row % 2

    def padded(items: list[Any]) -> tuple[dict[str, Tensor], Tensor]:
        tokens = pad_sequence([tokens for tokens, _ in items], batch_first=True, padding_value=5)
        return {"tokens": tokens, "mask": tokens < 5}, torch.tensor([target for _, target in items])

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.last = nn.Embedding(6, 8), nn.Linear(8, 2)

        def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
            return self.last((self.rows(tokens) * mask[..., None]).sum(dim=1))

    with pytest.raises(
        InputError, match=r"different shapes, such as .*; bring them to one shape, or give make_dataset a"
    ):
        make_dataset(Lines())
    torch.manual_seed(0)
    network, dataset = Bag(), make_dataset(Lines(), Lines(), collate=padded)
    one, two = (run(dataset, network, engine=engine) for engine in ("serial", "workers"))
    assert torch.equal(one.theta, two.theta)
    assert one.history[-1].accuracy is not None


def test_a_lazy_dataset_is_not_read_for_targets_that_it_tells():
    class Known(Items):
        targets = TARGETS.tolist()

    known = Known()
    data = federate(make_dataset(known, lazy=True), num_clients=4, partition="shards", seed=0)
    assert known.read == 0
    assert data.label_counts().sum() == 40
    given = make_dataset(Items(), lazy=True, targets=1 - TARGETS)
    assert torch.equal(given.train.targets, 1 - TARGETS)
    with pytest.raises(InputError, match="3 targets for 40 training examples"):
        make_dataset(Items(), lazy=True, targets=[0, 1, 1])


def test_data_ten_times_the_memory_it_takes_can_be_trained_on():
    class Large(Dataset[Any]):  # 200 examples of 1 MB
        targets = [0, 1] * 100

        def __len__(self) -> int:
            return 200

        def __getitem__(self, row: int) -> tuple[Tensor, int]:
            return torch.full((262_144,), float(row % 2)), row % 2

    network = nn.Sequential(nn.Unflatten(1, (4, -1)), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2))
    dataset = make_dataset(Large(), Large(), lazy=True)
    run(dataset, network, rounds=0)
    before = _peak(reset=True)
    local = fedadmm.LocalTraining(batch_size=2, learning_rate=0.1)
    result = run(dataset, network, rounds=1, participation=1.0, local=local)
    assert result.history[-1].loss is not None
    assert _peak() - before < 20 * 2**20


def _peak(*, reset: bool = False) -> int:
    """Return the most memory that this process has had, from now on if it is reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_a_last_batch_of_one_joins_the_one_before_for_batch_normalisation_and_the_record_names_the_client():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    local = fedadmm.LocalTraining(batch_size=3, epochs=2, learning_rate=0.1)
    dataset = make_dataset((INPUTS[:28], TARGETS[:28]))  # 7 for each of 4 clients: batches of 3 and 4
    one, two = (
        run(dataset, network, engine=engine, local=local, participation=1.0) for engine in ("serial", "workers")
    )
    assert torch.equal(one.theta, two.theta)
    assert one.history[0].joined == (0, 1, 2, 3)
    assert one.history[0].to_json()["joined"] == (0, 1, 2, 3)
    assert one.history[0].steps == 4 * 2 * 2
    assert one.history[0].gradient_evaluations == 4 * 2 * 7
    plain = run(dataset, nn.Linear(4, 2), local=local, participation=1.0)
    assert plain.history[0].joined == ()
    assert plain.history[0].steps == 4 * 2 * 3


@pytest.mark.slow
@pytest.mark.parametrize("drop_last", [None, True])
@pytest.mark.parametrize("name", ["fast_fedadmm", "feddyn_auto", "fedavg, tolerance"])
def test_a_gradient_over_all_examples_has_no_batch_of_one_for_batch_normalisation(name, drop_last):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    name, _, tolerance = name.partition(", ")
    local = fedadmm.LocalTraining(
        batch_size=3, learning_rate=0.1, drop_last=drop_last, tolerance=1e-9 if tolerance else None
    )
    rows = torch.arange(28)  # 7 for each of 4 clients: batches of 3 and 4
    data = federate(make_dataset(Subset(Items(), rows), lazy=True), num_clients=4, partition="iid", seed=0)
    algorithm = ALGORITHMS[name]()
    result = fedadmm.simulate(algorithm, model=network, data=data, local=local, rounds=2, participation=1.0, seed=1)
    assert result.history[-1].client_loss < result.history[0].client_loss


def test_a_dataset_that_can_only_be_gone_through_is_refused():
    class Stream(IterableDataset[Any]):
        def __iter__(self):
            return iter(zip(INPUTS, TARGETS, strict=True))

    for lazy in (True, False):
        with pytest.raises(InputError, match=r"has no length; give a .*Dataset with __len__ and __getitem__"):
            make_dataset(Stream(), lazy=lazy)


def test_the_last_batch_is_dropped_if_that_is_asked_for(model):
    local = fedadmm.LocalTraining(batch_size=4, epochs=3, learning_rate=0.1, drop_last=True)
    result = run(make_dataset((INPUTS, TARGETS)), model, local=local, participation=1.0, rounds=1)
    # Ten examples of each of 4 clients are two batches of 4 in each of 3 epochs.
    assert (result.history[0].steps, result.history[0].gradient_evaluations) == (4 * 3 * 2, 4 * 3 * 8)
    with pytest.raises(InputError, match="local has drop_last"):
        run(make_dataset((INPUTS, TARGETS)), model, local=local, engine="stacked")


def shifted(by: float) -> Any:
    """Return a function that draws this number."""
    return lambda: by


class Listed(Items):
    """The same with one more example that is other, far from those that are looked at."""

    def __init__(self, other: int) -> None:
        super().__init__()
        self.files = [f"{row}.png" for row in range(len(INPUTS))]
        self.files[other] = "other.png"

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        found, target = super().__getitem__(row)
        return found + (self.files[row] == "other.png"), target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: Items(shifted(0.0)), lambda: Items(shifted(1.0))),
        (lambda: Items(shifted(0.0)), lambda: Items(lambda: 0.0)),
        # Eight of 40 rows are read, 0, 5, 11 and so on: neither 1 nor 2.
        (lambda: Listed(1), lambda: Listed(2)),
    ],
    ids=["other numbers", "other code", "other files"],
)
def test_a_lazy_dataset_of_other_examples_has_another_run_folder(one, other, model: nn.Module, tmp_path: Path) -> None:
    first, again, second = (
        run(make_dataset(made(), lazy=True), model, rounds=1, out=tmp_path).folder for made in (one, one, other)
    )
    assert first == again != second


def test_what_reading_changes_does_not_tell_a_lazy_dataset_from_itself(model: nn.Module, tmp_path: Path) -> None:
    items = Items()  # which counts what is read
    folders = {run(make_dataset(items, lazy=True), model, rounds=1, out=tmp_path).folder for _ in range(2)}
    assert items.read > 0
    assert len(folders) == 1
