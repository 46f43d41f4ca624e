"""`clip` bounds the gradient of the loss alone, as torch.nn.utils.clip_grad_norm_ does before other terms are added."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm import FedADMM, LocalTraining
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.data.federated import PartitionedData
from play import identical
from ray_here import use_ray_here
from small_runs import outcome, simulation_of
from worlds import learning_task, made, perceptron, some_data

ROUND, EPOCHS, BATCH, LEARNING_RATE, CLIP = 3, 2, 4, 0.2, 0.9
TERMS: dict[str, float] = {"momentum": 0.5, "weight_decay": 0.05, "rho": 0.7}


def _smooth_network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def _gated_network() -> nn.Module:  # no plain sequence of layers: torch.func stacks it
    return nn.Sequential(nn.Linear(4, 6), nn.GLU(), nn.Linear(3, 3)).double()


def _data() -> PartitionedData:
    data = some_data([8, 10, 6])
    return PartitionedData(data.inputs.double(), data.targets, data.offsets, None, 3)


def _by_hand(module: nn.Module, client: int, *, start: Any, dual: Any, centre: Any, momentum: float) -> tuple[Any, int]:
    """Return where torch's SGD ends, whose gradients are clipped before the terms are added; and how many were long."""
    nn.utils.vector_to_parameters(start.clone(), module.parameters())
    parameters = list(module.parameters())
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=momentum, weight_decay=TERMS["weight_decay"])
    inputs, targets = _data().client(client)
    num_long = 0
    for epoch in range(EPOCHS):
        order = stream(0, "batches", ROUND, client, epoch).permutation(len(targets))
        for batch in torch.from_numpy(order).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(module(inputs[batch]), targets[batch]).backward()
            num_long += int(nn.utils.clip_grad_norm_(parameters, CLIP) > CLIP)
            away = nn.utils.parameters_to_vector(parameters).detach() - centre
            added = (dual + TERMS["rho"] * away).split([p.numel() for p in parameters])
            for parameter, term in zip(parameters, added, strict=True):
                assert parameter.grad is not None
                parameter.grad += term.view_as(parameter)
            optimizer.step()
    return nn.utils.parameters_to_vector(parameters).detach(), num_long


@pytest.mark.parametrize("make", [_smooth_network, _gated_network])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_every_client_takes_torchs_clipped_steps_alone_and_in_a_stack(make: Any, momentum: float) -> None:
    local = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": LEARNING_RATE, "clip": CLIP}
    task = learning_task(made(make), _data(), **local, momentum=momentum, weight_decay=TERMS["weight_decay"])
    generator = torch.Generator().manual_seed(11)
    start, dual, centre = torch.randn(3, task.num_parameters, generator=generator, dtype=torch.float64)
    terms = {"start": start, "dual": 0.3 * dual, "centre": centre}
    assignments = [Assignment(client, ROUND, EPOCHS) for client in range(3)]
    stack = task.stack(assignments, buffers=task.model.buffers())
    rows = stack.solve(**terms, rho=TERMS["rho"]).w
    num_long = num_steps = 0
    for assignment, row in zip(stack.assignments, rows, strict=True):
        theirs, long = _by_hand(made(make), assignment.client, **terms, momentum=momentum)
        problem = task.problem(assignment, buffers=task.model.buffers())
        ours = problem.solve(**terms, rho=TERMS["rho"]).w
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(row, theirs, rtol=1e-12, atol=1e-13)
        num_long, num_steps = num_long + long, num_steps + problem.num_steps
    assert 0 < num_long < num_steps  # some gradients are clipped, and some are not


def test_a_bound_that_no_gradient_reaches_changes_nothing() -> None:
    clipped, free = (_run("serial", **local) for local in ({"clip": 1e6}, {}))
    assert identical(clipped[:2], free[:2])


@pytest.mark.parametrize("engine", ["workers", "stacked", "ray"])
def test_every_engine_clips(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_here(monkeypatch, num_cpus=2)
    ours, serial, free = _run(engine, clip=0.5), _run("serial", clip=0.5), _run("serial")
    theta, right, unclipped = (run[0][1].theta for run in (ours, serial, free))
    assert (theta - right).norm() <= (0 if engine == "workers" else 1e-5 * right.norm())
    assert (theta - unclipped).norm() > 1e-3 * right.norm()


def _run(engine: str, **local: Any) -> Any:
    settings = LocalTraining(epochs=2, batch_size=6, learning_rate=0.3, **local)
    run = simulation_of(FedADMM(rho=0.5), engine=engine, workers=2, model=made(perceptron), local=settings)
    return outcome(run, rounds=3)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clip": 0.0}, "clip=0.0 is out of range; use a finite number greater than 0"),
        (
            {"clip": 10.0, "solver": "gd"},
            "clip=10.0 bounds the gradients of SGD, and local has solver='gd'; leave one of them out",
        ),
        ({"clip": 10.0, "solver": {"sgd": 0.5, "lbfgs": 0.5}}, "local has solver='lbfgs'; leave one of them out"),
    ],
)
def test_what_cannot_be_clipped_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        LocalTraining(**settings)
    assert sentence in str(caught.value)
