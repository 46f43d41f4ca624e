"""What cannot be stacked is refused with a reason and a remedy, and "auto" says what it picked."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm import Algorithm, Experiment, FedADMM, FedAvg, InputError, LocalTraining, Simulation
from fedadmm.engine.probe import check_elementwise
from fedadmm.runs.runner import run
from methods import ON_NETWORKS
from worlds import made, some_data


class Written(nn.Module):
    """A dense layer, and a function of the outputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.dense, self.function = nn.Linear(4, 3), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.dense(x))


def simulation(
    model: nn.Module, *, engine: str = "stacked", method: Algorithm | None = None, **options: Any
) -> Simulation:
    method = method if method is not None else FedAvg()
    data = some_data([8, 10, 6])
    return Simulation(
        method, model=model, data=data, local=LocalTraining(), participation=1.0, seed=0, engine=engine, **options
    )


REFUSED = {
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), "dropout"),
    "dropout inside": (lambda: Written(lambda z: functional.dropout(z, 0.5)), "draws random numbers"),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "batch normalisation"),
    "batch statistics alone": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        "batch normalisation",
    ),
    "running statistics": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten(), nn.Linear(4, 3)
        ),
        "buffers that change",
    ),
    "examples that meet": (lambda: Written(lambda z: z - z.mean(dim=0)), "mixes the examples"),
    "values that decide": (lambda: Written(lambda z: z if z.sum() > 0 else -z), "torch.func cannot stack"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_stacked_is_refused_with_a_remedy_before_anything_is_written(case: str) -> None:
    make, reason = REFUSED[case]
    opened: list[Any] = []
    with pytest.raises(InputError, match=reason) as refusal:
        simulation(made(make), open_store=lambda *_: opened.append(_))
    assert 'engine = "workers"' in str(refusal.value)
    assert not opened


def test_a_loss_that_is_no_mean_is_refused() -> None:
    with pytest.raises(InputError, match="twice the examples is twice as large; return the mean"):
        simulation(nn.Linear(4, 3), loss=lambda z, y: functional.cross_entropy(z, y, reduction="sum"))


@dataclass(frozen=True)
class Clipped(FedAvg):
    """FedAvg with uploads of norm 1 at most: right for one client, wrong for a stack."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, client = super().client_update(server, client, problem)
        return type(upload)(upload.step / max(1.0, float(upload.step.norm()))), client


@dataclass(frozen=True)
class Deciding(FedAvg):
    """FedAvg that looks at a scalar."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, client = super().client_update(server, client, problem)
        return upload if problem.num_steps > 2 else type(upload)(0 * upload.step), client


@pytest.mark.parametrize("method", [Clipped(), Deciding()])
def test_an_algorithm_that_mixes_the_clients_of_a_stack_is_refused(method: Algorithm) -> None:
    with pytest.raises(InputError, match=r"cannot run on a stack .* elementwise"):
        simulation(nn.Linear(4, 3), method=method)


@pytest.mark.parametrize("name", ON_NETWORKS)
def test_our_methods_are_elementwise(name: str) -> None:
    check_elementwise(ON_NETWORKS[name])


@pytest.mark.slow
def test_auto_picks_by_size_and_by_what_can_be_stacked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fedadmm")
    middle, wide = (nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Linear(n, 3)) for n in (20_000, 40_000))
    convolution = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(6, 3))
    dropout = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    for method, model, name, reason in (
        (FedAvg(), nn.Linear(4, 3), "stacked", "15 parameters are at most 100,000"),
        (FedAvg(), middle, "stacked", "160,003 parameters are at most 300,000"),  # (4 + 1 + 3) x 20,000 + 3
        (FedADMM(), middle, "workers", "160,003 parameters are more than 100,000, and clients keep a state"),
        (FedAvg(), wide, "workers", "320,003 parameters are more than 300,000"),
        (FedAvg(), convolution, "workers", "convolutions"),
        (FedAvg(), dropout, "workers", "dropout"),
    ):
        with_auto = simulation(model, engine="auto", workers=1, method=method)
        with_auto.close()
        assert with_auto.engine.name == name
        assert reason in with_auto.engine.reason
        assert f"engine {name}: " in caplog.messages[-1]


def test_what_auto_picked_is_in_the_run_folder_and_not_in_its_name(tmp_path: Path) -> None:
    named, auto = (
        Experiment(rounds=1, engine=engine, model={"name": "softmax_regression"}) for engine in ("stacked", "auto")
    )
    assert named.hash == auto.hash
    folders = [run(experiment, out=tmp_path / experiment.engine).folder.path for experiment in (named, auto)]
    assert not (folders[0] / "engine.txt").exists()
    assert (folders[1] / "engine.txt").read_text() == "stacked: 650 parameters are at most 100,000\n"
