"""FedAvgM: measuring the effects of non-identical data distribution (Hsu, Qi and Brown, 2019), a server with momentum.

theta  the server's model              v    the momentum: v <- beta v + g, then theta <- theta - eta v
beta   how much of v stays             g    minus the step that the inner algorithm would add to theta
"""

from fedadmm.algorithms.wrapper import PLAIN, ServerOptimizer
from fedadmm.core.algorithm import AnyAlgorithm, Vector, zeros_like
from fedadmm.core.schedules import Decay, PositiveRate, at


class FedAvgM(ServerOptimizer):
    """The mean step is taken with momentum.

    eta = 1.0: the server's learning rate; a number or a schedule.
    beta = 0.9: how much of the momentum stays from round to round, from 0 to below 1.
    inner = {name = "fedprox", rho = 0.1}: the algorithm whose step that is.
    """

    eta: PositiveRate = 1.0
    beta: Decay = 0.9
    inner: AnyAlgorithm = PLAIN

    memory = ("v",)

    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        return (zeros_like(theta),)

    def stepped(self, theta: Vector, g: Vector, *memory: Vector, round: int) -> tuple[Vector, ...]:
        v = self.beta * memory[0] + g
        return theta.add(v, alpha=-at(self.eta, round)), v
