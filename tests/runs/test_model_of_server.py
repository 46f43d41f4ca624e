"""What is evaluated, exported and reported is the algorithm's model, which may be another point than theta."""

from pathlib import Path

import pytest
import torch

from fedadmm import Experiment, FedAvg
from fedadmm.algorithms.fedavg import Server
from fedadmm.config.plans import load_plan
from fedadmm.runs.check import findings
from fedadmm.runs.export import read_model
from fedadmm.runs.runner import run
from fedadmm.runs.simulation import simulation_of as simulation_from
from small_runs import simulation_of
from told import Doubled
from worlds import made, perceptron


@pytest.mark.parametrize("engine", ["serial", "workers", "stacked"])
def test_scores_and_weights_are_those_of_the_model(engine: str) -> None:
    doubled, plain = (
        simulation_of(method, engine=engine, workers=2, model=made(perceptron)) for method in (Doubled(), FedAvg())
    )
    for _ in range(2):
        record = doubled.advance()
        plain.advance()
    twice = 2 * plain.theta
    assert torch.equal(doubled.checkpoint.server.theta, plain.theta)
    assert torch.equal(doubled.theta, twice)
    scores = plain._engine.evaluate(Server(twice), buffers=plain.checkpoint.buffers)
    assert (record.accuracy, record.loss) == (scores["accuracy"], scores["loss"])
    assert doubled.evaluate() == scores
    weights = torch.nn.utils.parameters_to_vector(doubled.model().parameters())
    assert torch.equal(weights, twice)
    assert not torch.equal(weights, plain.theta)
    theirs, ours = (
        plain.task.evaluate_client(0, twice, buffers=plain.checkpoint.buffers)["loss"],
        doubled.evaluate_clients("loss").values[0],
    )
    assert ours == theirs
    assert torch.equal(doubled.personal_model(0), twice)
    doubled.close()
    plain.close()


@pytest.mark.slow
def test_a_run_folder_keeps_the_model_and_is_sound(tmp_path: Path) -> None:
    doubled, plain = (
        run(Experiment(algorithm={"name": name}, rounds=2, engine="serial"), out=tmp_path).folder
        for name in ("told:Doubled", "fedavg")
    )
    ours, theirs = read_model(doubled), read_model(plain)
    assert ours is not None
    assert theirs is not None
    assert torch.equal(ours.theta, 2 * theirs.theta)
    assert not [finding for finding in findings(doubled.path) if finding.kind == "problem"]


@pytest.mark.slow
def test_the_distance_is_that_of_the_model() -> None:
    changes = {"rounds": 2, "engine": "serial", "algorithm": Doubled()}
    simulation = simulation_from(load_plan("quadratic").experiment().replace(**changes))
    for _ in range(2):
        record = simulation.advance()
    assert simulation.optimum is not None
    assert record.metrics["distance"] == simulation.optimum.distance(2 * simulation.checkpoint.server.theta)
