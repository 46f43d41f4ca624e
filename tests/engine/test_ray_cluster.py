"""A Ray of a script's own, and a cluster of two nodes beside the head, all on this machine; one of them is lost."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray.cluster_utils import Cluster
from torch import nn
from torch.nn import functional

from commands import fedadmm
from fedadmm import FedADMM, FedAvg, InputError
from play import identical
from ray_here import use_ray_here
from small_runs import outcome, simulation_of
from worlds import made

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),  # one cluster for all of them
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),  # Ray's own
]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster.md"
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
HEAD = {"num_cpus": 0, "include_dashboard": False, "no_monitor": True, "include_log_monitor": False}  # nobody looks
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of one CPU each, and a head without any."""
    made_here = Cluster(initialize_head=True, head_node_args={**NODE, **HEAD, "_system_config": SOON})
    made_here.add_node(**NODE)
    made_here.add_node(**NODE)
    ray.init(address=made_here.address, log_to_driver=False, logging_level="error")
    yield made_here
    ray.shutdown()
    made_here.shutdown()


def wide() -> nn.Module:
    """Return a perceptron whose vectors are too large, 192 kB, to travel inside a message of Ray's."""
    return nn.Sequential(nn.Linear(4, 6000), nn.ReLU(), nn.Linear(6000, 3))


@pytest.mark.deployment
def test_a_users_exception_arrives_whole_and_leaves_the_run_as_it_was(cluster: Cluster) -> None:
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if outputs.requires_grad and len(targets) == 6:
            raise ZeroDivisionError("the user's own mistake")
        return functional.cross_entropy(outputs, targets)

    simulation = simulation_of(FedAvg(), engine="ray", loss=loss)
    theta = simulation.theta.clone()
    for _ in range(2):
        with pytest.raises(InputError, match=r"the loss, .* of client \d, fails; .*\n.*the user's own mistake"):
            simulation.advance()
    simulation.close()
    assert torch.equal(simulation.theta, theta)
    assert simulation.history == []


@pytest.mark.deployment
def test_the_commands_of_the_page_run_on_a_cluster(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    first, longer = re.findall(r"^ *\$ RAY_ADDRESS=auto fedadmm (run .*)", PAGE.read_text(), flags=re.MULTILINE)
    for command, rounds in ((f"{first} --rounds 2", 2), (longer, 3)):
        done = fedadmm(*command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (records,) = tmp_path.glob("runs/*/rounds.jsonl")  # the second goes on in the folder of the first
        assert len(records.read_text().splitlines()) == rounds


SCRIPT = """
import ray
import torch
from fedadmm import FedADMM, LocalTraining, federate, load, simulate

data = federate(load("digits"), num_clients=20, partition="iid", seed=0)
options = dict(model="softmax_regression", data=data, rounds=2, participation=0.5, local=LocalTraining(epochs=1))
serial, ours = (simulate(FedADMM(), engine=engine, workers=1, **options) for engine in ("serial", "ray"))
assert not torch.equal(ours.theta, torch.zeros_like(ours.theta))
assert torch.allclose(serial.theta, ours.theta, rtol=0, atol=1e-6)
print("ended" if not ray.is_initialized() else "still there")
"""


@pytest.mark.deployment
def test_a_script_starts_a_ray_and_ends_it() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "ended", done.stderr


@pytest.mark.deployment
def test_the_loss_of_a_node_changes_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        use_ray_here(patch, num_cpus=2)
        undisturbed = outcome(simulation_of(FedADMM(), engine="ray", model=made(wide)), rounds=5)

    simulation = simulation_of(FedADMM(), engine="ray", model=made(wide), folder=tmp_path / "state")
    engine = simulation._engine
    simulation.advance()
    simulation.advance()
    passed_on = engine._answers

    def answers_and_a_loss(*arguments: Any) -> Any:
        for number, answer in enumerate(passed_on(*arguments)):
            if number == 1:
                monkeypatch.undo()
                cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            yield answer

    monkeypatch.setattr(engine, "_answers", answers_and_a_loss)
    simulation.advance()
    assert len(cluster.worker_nodes) == 1
    assert identical(outcome(simulation, rounds=2), undisturbed)
