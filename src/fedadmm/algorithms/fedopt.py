"""FedAdam and FedYogi: adaptive federated optimization (Reddi et al., ICLR 2021), Algorithm 2.

theta  the server's model              step  what the inner algorithm would add to theta; g is minus it
m      a running mean of g: m <- beta_1 m + (1 - beta_1) g, from 0
v      a running size of g^2, from tau^2; Adam: v <- beta_2 v + (1 - beta_2) g^2
                                          Yogi: v <- v - (1 - beta_2) g^2 sign(v - g^2)
Then theta <- theta - eta m / (sqrt(v) + tau). As in the paper, neither m nor v is corrected for its beginning.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedadmm.algorithms.fedavgm import check_decay
from fedadmm.algorithms.server_optimizer import PLAIN, ServerOptimizer
from fedadmm.core.algorithm import Algorithm, Vector
from fedadmm.core.schedules import Rate, at, check_rate


@dataclass(frozen=True)
class FedAdam(ServerOptimizer):
    """The mean step is taken by Adam (torch's)."""

    eta: Rate = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3
    inner: Algorithm[Any, Any, Any] = PLAIN

    memory: ClassVar[Mapping[str, str]] = {"m": "exp_avg", "v": "exp_avg_sq"}

    def __post_init__(self) -> None:
        check_rate("eta", self.eta, positive=True)
        check_decay("beta_1", self.beta_1)
        check_decay("beta_2", self.beta_2)
        check_rate("tau", self.tau, positive=True)
        self.check_inner()

    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        return torch.zeros_like(theta), torch.full_like(theta, self.tau**2)

    def optimizer(self, theta: Vector, *, round: int) -> torch.optim.Optimizer:
        betas = (self.beta_1, self.beta_2)
        adam = torch.optim.Adam([theta], lr=at(self.eta, round), betas=betas, eps=self.tau, foreach=False)
        adam.state[theta]["step"] = torch.tensor(math.inf)  # where torch's correction of m and v is gone
        return adam


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """The mean step is taken by Yogi, whose v falls no faster than it rises."""

    def optimizer(self, theta: Vector, *, round: int) -> torch.optim.Optimizer:
        return Yogi(theta, eta=at(self.eta, round), beta_1=self.beta_1, beta_2=self.beta_2, tau=self.tau)


class Yogi(torch.optim.Optimizer):
    """What torch does not have: Yogi on one vector (Zaheer et al., NeurIPS 2018)."""

    def __init__(self, theta: Vector, *, eta: float, beta_1: float, beta_2: float, tau: float) -> None:
        super().__init__([theta], {"eta": eta, "beta_1": beta_1, "beta_2": beta_2, "tau": tau})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move theta, and remember m and v."""
        (group,) = self.param_groups
        (theta,) = group["params"]
        m, v = self.state[theta]["exp_avg"], self.state[theta]["exp_avg_sq"]
        m.mul_(group["beta_1"]).add_(theta.grad, alpha=1 - group["beta_1"])
        square = theta.grad.square()
        v.addcmul_(square, torch.sign(v - square), value=group["beta_2"] - 1)
        theta.addcdiv_(m, v.sqrt().add_(group["tau"]), value=-group["eta"])
