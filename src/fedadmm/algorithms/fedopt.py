"""FedAdam and FedYogi: adaptive federated optimization (Reddi et al., ICLR 2021), Algorithm 2.

theta  the server's model              g    minus the step that the inner algorithm would add to theta
m      a running mean of g: m <- beta_1 m + (1 - beta_1) g, from 0
v      a running size of g^2, from tau^2; Adam: v <- beta_2 v + (1 - beta_2) g^2
                                          Yogi: v <- v - (1 - beta_2) g^2 sign(v - g^2)
Then theta <- theta - eta m / (sqrt(v) + tau). As in the paper, neither m nor v is corrected for its beginning.
"""

from fedadmm.algorithms.wrapper import PLAIN, ServerOptimizer
from fedadmm.core.algorithm import AnyAlgorithm, Vector, zeros_like
from fedadmm.core.schedules import Decay, PositiveConstant, PositiveRate, at


class FedAdam(ServerOptimizer):
    """The mean step is taken by Adam.

    eta = 0.01: the server's learning rate; a number or a schedule.
    beta_1 = 0.9: how much of the running mean of steps stays from round to round, from 0 to below 1.
    beta_2 = 0.99: how much of their running size stays, from 0 to below 1.
    tau = 1e-3: is added to the root of the size; a small one adapts more.
    inner = {name = "fedprox", rho = 0.1}: the algorithm whose step that is.
    """

    eta: PositiveRate = 0.01
    beta_1: Decay = 0.9
    beta_2: Decay = 0.99
    tau: PositiveConstant = 1e-3
    inner: AnyAlgorithm = PLAIN

    memory = ("m", "v")

    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        return zeros_like(theta), zeros_like(theta) + self.tau**2

    def stepped(self, theta: Vector, g: Vector, *memory: Vector, round: int) -> tuple[Vector, ...]:
        m, v = self.moments(g, *memory)
        return theta.addcdiv(m, v.sqrt() + self.tau, value=-at(self.eta, round)), m, v

    def moments(self, g: Vector, m: Vector, v: Vector) -> tuple[Vector, Vector]:
        """Return m and v after a round."""
        return m.lerp(g, 1 - self.beta_1), (self.beta_2 * v).addcmul(g, g, value=1 - self.beta_2)


class FedYogi(FedAdam):
    """The mean step is taken by Yogi (Zaheer et al., NeurIPS 2018), whose v falls no faster than it rises.

    Its fields are those of FedAdam.
    """

    def moments(self, g: Vector, m: Vector, v: Vector) -> tuple[Vector, Vector]:
        v = v.addcmul(g.square(), (v - g.square()).sign(), value=self.beta_2 - 1)
        return (self.beta_1 * m).add(g, alpha=1 - self.beta_1), v
