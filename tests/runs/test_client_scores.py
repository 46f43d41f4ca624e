"""Each client is scored on examples of its own that it does not train on (data.client_test)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedadmm
from fedadmm import Experiment, FedAvg, InputError, LocalTraining, PartitionedData, Record
from fedadmm.report.runs import read_run
from fedadmm.runs.assembly import data_of
from fedadmm.runs.client_scores import ClientScores
from fedadmm.runs.runner import run
from fedadmm.runs.sinks import numbers_of
from small_runs import outcome, simulation_of
from worlds import made, perceptron

COUNTS = (1, 2, 9, 10)  # a client with one example trains on it, and is not scored


def _data(client_test: float | None = 0.2, **options: object) -> PartitionedData:
    generator = torch.Generator().manual_seed(5)
    inputs, targets = torch.randn(22, 4, generator=generator), torch.arange(22) % 3
    groups = np.repeat(np.arange(4), COUNTS)
    dataset = fedadmm.make_dataset((inputs, targets), None)._replace(groups=groups)
    return fedadmm.federate(dataset, num_clients=None, partition="natural", seed=0, client_test=client_test)


def _rows(data: PartitionedData, client: int) -> set[tuple[float, ...]]:
    return {tuple(row) for row in data.client(client).inputs.flatten(1).tolist()}


def test_the_held_out_examples_of_a_client_are_its_own_and_it_trains_on_the_others() -> None:
    data, whole = _data(), _data(None)
    assert data.held_out is not None
    assert whole.held_out is None
    assert data.held_out.num_examples.tolist() == [0, 1, 2, 2]  # 0.2 of them, at least one, never all
    for client in range(4):
        trained, held = _rows(data, client), _rows(data.held_out, client)
        assert trained | held == _rows(whole, client)
        assert not trained & held


def test_what_is_tuned_is_never_judged_on_the_examples_that_a_run_is_judged_on() -> None:
    table = {"name": "digits", "num_clients": 10, "client_test": 0.25}
    run_data, tuning_data = (data_of(Experiment(data=table | more)) for more in ({}, {"validation": 0.2}))
    for client in range(10):
        trained, judged = _rows(run_data, client), _rows(run_data.held_out, client)
        tuned, valid = _rows(tuning_data, client), _rows(tuning_data.held_out, client)
        assert tuned | valid == trained
        assert not valid & (judged | tuned)
    assert len(tuning_data.test.targets) == tuning_data.held_out.num_examples.sum()


def test_a_record_has_mean_spread_worst_decile_and_quantiles_over_clients() -> None:
    data, local = _data(), LocalTraining(batch_size=4)
    result = fedadmm.simulate(
        FedAvg(), model=made(perceptron), data=data, rounds=2, participation=1.0, local=local, engine="serial"
    )
    module = result.model()
    losses = [functional.cross_entropy(module(x), y).item() for x, y in map(data.held_out.client, (1, 2, 3))]
    last = result.history[-1]
    numbers = [last.value(f"loss_client_{kind}") for kind in ("mean", "std", "worst_decile")]
    assert numbers == pytest.approx([np.mean(losses), np.std(losses), max(losses)])
    assert last.client_quantiles["loss"][::5] == pytest.approx(np.quantile(losses, [0, 0.5, 1]).tolist())
    assert Record.from_json(last.to_json()) == last
    scores = result.evaluate_clients("loss")
    assert np.isnan(scores.values[0])
    assert scores.values[1:].tolist() == pytest.approx(losses)
    with pytest.raises(InputError, match="metric='f1' is unknown; use one of loss, accuracy"):
        result.evaluate_clients("f1")


def test_the_worst_decile_of_a_loss_is_its_highest() -> None:
    # 20 clients: the worst tenth is two of them, with losses 3 and 2.
    assert ClientScores(np.array([0.5] * 18 + [2.0, 3.0]), lower_is_better=True).worst_decile == 2.5


def test_an_experiment_holds_out_examples_of_each_client_by_one_key(tmp_path: Path) -> None:
    table = {"num_clients": 10, "client_test": 0.25}
    experiment = Experiment(rounds=1, data=table, model={"name": "softmax_regression"}, engine="serial")
    (record,) = run(experiment, out=tmp_path).history
    assert 0 <= record.number("accuracy_client_worst_decile") <= record.number("accuracy_client_mean") < 1
    assert record.accuracy is not None  # of the same model, on the test examples
    assert read_run(tmp_path / experiment.folder_name).rounds == [record]
    assert numbers_of(record)["accuracy_client_mean"] == record.number("accuracy_client_mean")
    assert experiment.hash != experiment.replace(data={"num_clients": 10}).hash
    with pytest.raises(InputError, match=r"client_test=1\.0 is out of range; use a number above 0 and below 1"):
        run(Experiment(data={"num_clients": 10, "client_test": 1.0}), out=tmp_path)


def test_workers_score_clients_as_serial_does() -> None:
    options = {"model": made(perceptron), "data": _data(), "participation": 1.0, "weighting": "equal"}
    serial, workers = (
        outcome(simulation_of(FedAvg(), engine=engine, workers=2, **options), rounds=2)[2]
        for engine in ("serial", "workers")
    )
    assert serial == workers
    assert len(serial[0]["client_quantiles"]["accuracy"]) == 11
