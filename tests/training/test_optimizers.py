"""`local.optimizer`: a torch optimizer in minibatches, around the algorithm's terms, as in a loop of torch's own."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedadmm import FedAvg, FedCM, FedNova, FedProx, FedSGD, InputError, LocalTraining, Scaffold, Simulation
from fedadmm.algorithms import Averaged, LocalGHBM
from fedadmm.core.seeds import stream
from fedadmm.training.steps import rate_factor
from small_runs import outcome, simulation_of
from worlds import made, perceptron, some_data

COUNTS, BATCH, EPOCHS, RATE, RHO = (8, 10, 6), 4, 2, 0.05, 0.7
HERE = "test_optimizers"


class SignDescent(torch.optim.Optimizer):
    """A user's own: it looks at whole layers, and asks for the gradient itself."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, scale: float = 1.0) -> None:
        super().__init__(parameters, {"lr": lr, "scale": scale})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    size = parameter.grad.norm() * group["scale"]
                    parameter.sub_(group["lr"] * size * parameter.grad.sign())
        return loss


class Scheduled(torch.optim.SGD):
    """A user's own, which lowers its rate itself."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, lr=lr)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self, 0.8)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = super().step(closure)
        self.schedule.step()
        return loss


def none_at_all(parameters: object, lr: float) -> None:
    """Return what is not an optimizer."""


def _simulation(algorithm: Any, **local: Any) -> Simulation:
    settings = LocalTraining(epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE, **local)
    return Simulation(
        algorithm,
        model=made(perceptron),
        data=some_data(COUNTS),
        local=settings,
        participation=1.0,
        seed=0,
        engine="serial",
    )


def _by_hand(make: Any, *, rounds: int, rho: float = 0.0, clip: float | None = None, factor: Any = None) -> Any:
    """Return theta after rounds of torch's own loop, with an optimizer that is new at each visit."""
    module, data = made(perceptron), some_data(COUNTS)
    theta = nn.utils.parameters_to_vector(module.parameters()).detach()
    for round in range(1, rounds + 1):
        ends = []
        for client in range(len(COUNTS)):
            nn.utils.vector_to_parameters(theta.clone(), module.parameters())
            optimizer = make(module.parameters(), lr=RATE)
            inputs, targets = data.client(client)
            steps = EPOCHS * -(-len(targets) // BATCH)
            scheduled = [torch.optim.lr_scheduler.LambdaLR(optimizer, partial(factor, n=steps))] if factor else []
            for epoch in range(EPOCHS):
                order = torch.from_numpy(stream(0, "batches", round, client, epoch).permutation(len(targets)))
                for batch in order.split(BATCH):
                    w = nn.utils.parameters_to_vector(module.parameters())
                    optimizer.zero_grad()
                    loss = functional.cross_entropy(module(inputs[batch]), targets[batch])
                    loss.backward()
                    if clip is not None:
                        nn.utils.clip_grad_norm_(module.parameters(), clip)
                    if rho:
                        (rho / 2 * (w - theta).square().sum()).backward()
                    optimizer.step()
                    for schedule in scheduled:
                        schedule.step()
            ends.append(nn.utils.parameters_to_vector(module.parameters()).detach())
        theta = torch.stack(ends).mean(dim=0)
    return theta


def _warm_and_cosine(k: int, n: int) -> float:
    return rate_factor(LocalTraining(warmup=0.5, rate_decay="cosine"), k, num_steps=n)


@pytest.mark.parametrize(
    ("algorithm", "local", "make", "options"),
    [
        (FedAvg(), {"optimizer": "adam"}, torch.optim.Adam, {}),
        (FedProx(rho=RHO), {"optimizer": "adam"}, torch.optim.Adam, {"rho": RHO}),
        (FedProx(rho=RHO), {"optimizer": "adam", "clip": 0.3}, torch.optim.Adam, {"rho": RHO, "clip": 0.3}),
        (
            FedAvg(),
            {"optimizer": "adam", "weight_decay": 0.1, "optimizer_options": {"betas": [0.5, 0.9]}},
            partial(torch.optim.Adam, weight_decay=0.1, betas=(0.5, 0.9)),
            {},
        ),
        (FedAvg(), {"optimizer": "adamw", "weight_decay": 0.3}, partial(torch.optim.AdamW, weight_decay=0.3), {}),
        (FedAvg(), {"optimizer": torch.optim.RMSprop}, torch.optim.RMSprop, {}),
        (FedAvg(), {"optimizer": f"{HERE}:Scheduled"}, Scheduled, {}),
        (
            FedProx(rho=RHO),
            {"optimizer": f"{HERE}:SignDescent", "optimizer_options": {"scale": 2.0}},
            partial(SignDescent, scale=2.0),
            {"rho": RHO},
        ),
        (
            FedAvg(),
            {"optimizer": "adam", "warmup": 0.5, "rate_decay": "cosine"},
            torch.optim.Adam,
            {"factor": _warm_and_cosine},
        ),
        (
            FedProx(rho=RHO),
            {"momentum": 0.5, "warmup": 0.5, "rate_decay": "cosine"},
            partial(torch.optim.SGD, momentum=0.5),
            {"rho": RHO, "factor": _warm_and_cosine},
        ),
    ],
)
def test_a_run_is_that_of_torchs_own_loop(algorithm: Any, local: Any, make: Any, options: Any) -> None:
    simulation = _simulation(algorithm, **local)
    for _ in range(2):
        simulation.advance()
    torch.testing.assert_close(simulation.theta, _by_hand(make, rounds=2, **options), rtol=1e-5, atol=1e-6)


def test_the_rate_rises_over_the_share_and_falls_from_there() -> None:
    # 8 steps: a quarter of them, 2, rise to 1/2 and 2/2; the other 6 fall by a sixth each, from 1 on.
    linear = LocalTraining(warmup=0.25, rate_decay="linear")
    factors = [rate_factor(linear, step, num_steps=8) for step in range(8)]
    assert factors == pytest.approx([1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    # A cosine is at half its height in the middle of the fall: step 2 of 4.
    cosine = LocalTraining(rate_decay="cosine")
    assert [rate_factor(cosine, step, num_steps=4) for step in (0, 2)] == pytest.approx([1, 1 / 2])


@pytest.mark.slow
def test_workers_take_the_same_steps_to_the_bit() -> None:
    local = LocalTraining(epochs=2, batch_size=6, optimizer="adam", warmup=0.2)
    serial, workers = (
        outcome(
            simulation_of(FedProx(rho=RHO), engine=engine, workers=2, model=made(perceptron), local=local), rounds=2
        )
        for engine in ("serial", "workers")
    )
    assert serial[0][1].theta.equal(workers[0][1].theta)


def test_auto_does_not_stack_an_optimizer() -> None:
    simulation = simulation_of(FedAvg(), engine="auto", local=LocalTraining(optimizer="adam"), model=made(perceptron))
    assert str(simulation.engine).startswith("workers: a stack runs epochs of SGD, and local has optimizer")
    simulation.close()


@pytest.mark.parametrize(
    ("algorithm", "local", "sentence"),
    [
        (Scaffold(), {"optimizer": "adam"}, "Scaffold needs steps of SGD with one learning rate, and local has optim"),
        (FedNova(), {"warmup": 0.1}, "FedNova needs steps of SGD with one learning rate, and local has warmup=0.1"),
        (FedCM(), {"rate_decay": "linear"}, "local has rate_decay='linear'; leave it out"),
        (
            FedCM(),
            {"momentum": 0.5},
            "FedCM divides a way of its own among the steps of a visit, and local has momentum=0",
        ),
        (
            LocalGHBM(),
            {"solver": "lbfgs"},
            "LocalGHBM divides a way of its own among the steps of a visit, and local has",
        ),
        (FedCM(), {"tolerance": 0.1}, "and local has tolerance=0.1; leave it out"),
        (Averaged(inner=Scaffold()), {"momentum": 0.5}, "Scaffold needs plain SGD, and local has momentum=0.5"),
        (FedSGD(), {"optimizer": "adam"}, "it would ignore local's optimizer=adam"),
        (FedAvg(), {"optimizer": "adagrad"}, "optimizer='adagrad' is unknown; use one of sgd, adam, adamw, or"),
        (
            FedAvg(),
            {"optimizer": "adam", "solver": "gd"},
            "optimizer='adam' is for steps in minibatches, and local has",
        ),
        (FedAvg(), {"optimizer": "adam", "momentum": 0.9}, "momentum=0.9 is for SGD, and local has optimizer='adam'"),
        (FedAvg(), {"optimizer_options": {"betas": [0.5, 0.9]}}, "has no optimizer; give local.optimizer"),
        (FedAvg(), {"optimizer": "adam", "optimizer_options": {"beta": 1}}, "cannot be made with lr=0.05 and"),
        (
            FedAvg(),
            {"optimizer": "adam", "optimizer_options": {"fused": True, "foreach": True}},
            "cannot be made with lr",
        ),
        (FedAvg(), {"optimizer": f"{HERE}:none_at_all"}, "makes NoneType; make a torch.optim.Optimizer"),
        (FedAvg(), {"optimizer": f"{HERE}:HERE"}, "is of type str; name a function of (parameters, lr) that returns"),
        (FedAvg(), {"optimizer": lambda p, lr: None}, "cannot be imported; put it in a module, as"),
        (FedAvg(), {"warmup": 1.0}, "warmup=1.0 is out of range; use a number from 0 to below 1"),
        (FedAvg(), {"rate_decay": "sine"}, "rate_decay='sine' is not valid"),
    ],
)
def test_what_does_not_go_together_is_refused(algorithm: Any, local: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        _simulation(algorithm, **local)
    assert sentence in str(caught.value)


def failing(parameters: object, lr: float) -> torch.optim.Optimizer:
    """Return an optimizer whose step fails."""
    optimizer = torch.optim.SGD(parameters, lr=lr)  # type: ignore[arg-type]
    optimizer.register_step_pre_hook(lambda *_: {}["momentum"])
    return optimizer


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("torch.optim:SparseAdam", r"it takes sparse gradients, and those of the model are dense; use another, "),
        (f"{HERE}:failing", r"correct it, or use another\n  KeyError: 'momentum' \(.*test_optimizers.py, line"),
    ],
)
def test_a_step_that_fails_is_the_optimizers(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^the step of local.optimizer='{name}' fails; {sentence}"):
        _simulation(FedAvg(), optimizer=name).advance()


def test_a_model_that_fails_under_an_optimizer_is_not_the_optimizers() -> None:
    simulation = _simulation(FedAvg(), optimizer="adam")
    simulation.task.model.module.register_forward_hook(lambda *_: {}["mine"])
    with pytest.raises(InputError, match=r"^the model, trained on .* of client 0, fails; correct it"):
        simulation.advance()
