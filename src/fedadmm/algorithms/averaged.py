"""Any algorithm, judged at a running mean of its server's models (Polyak and Ruppert, 1992).

running_mean  of the models of all rounds so far; the weights of the rounds fall by `decay`, and sum to 1
Training is the inner algorithm's and does not change: what is evaluated, exported and reported is the running mean.

decay = "auto" is a mean whose weights grow as the 8th power of the round (Shamir and Zhang, ICML 2013): over hardly
more than the last round at first, over more of them the longer a run is.
"""

from typing import Any

from fedadmm.algorithms.wrapper import PLAIN, Wrapper
from fedadmm.core.algorithm import AnyAlgorithm, Turnout, Vector
from fedadmm.core.schedules import DecayOrAuto

POWER = 8  # of the round, for its weight in the mean, for "auto"


class Averaged(Wrapper):
    """The inner algorithm, evaluated at the running mean of its models.

    decay = 0.7: how much of the running mean stays from round to round, from 0 to below 1. With "auto" the mean is over
        more rounds the longer the run is.
    inner = {name = "fedavg"}: the algorithm.
    """

    decay: DecayOrAuto = 0.7
    inner: AnyAlgorithm = PLAIN

    memory = ("running_mean",)

    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        return (theta,)

    def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
        after = self.inner.server_update(self.inner_server(server), mean, turnout)
        return type(server)(
            *after, updated_average(server.running_mean, self.inner.model(after), self.decay, turnout.round)
        )

    def model(self, server: Any) -> Vector:
        return server.running_mean


def updated_average(average: Vector, newest: Vector, decay: float | str, round: int) -> Vector:
    """Return the running mean with the model of a round, which is counted from 1; decay is a number or "auto"."""
    share = (POWER + 1) / (POWER + round) if isinstance(decay, str) else (1 - decay) / (1 - decay**round)
    return average + share * (newest - average)
