"""FedCM: federated learning with client-level momentum (Xu, Wang, Wang and Yao, 2021), Algorithm 2.

theta  the server's model                  w    a client's model after K local steps
step   the mean step of the last round     lr   the learning rate of the round
alpha  the weight of a client's own gradient, of which 1 - alpha is left for the momentum
The paper's local step is eta_l (alpha g + (1 - alpha) Delta), with Delta = -step / (eta_l K). Here it is
lr (g + (1 - alpha) m), with m = -step / (lr K) = Delta / alpha. That is the same for lr = alpha eta_l: so the learning
rate of an experiment is that of the gradient, and the paper's times alpha.
eta    the server's step (the paper's eta_g, over eta_l K)

Public code divides by the K and the learning rate of the client that goes along the momentum, and so do we: over its
local steps a client moves by (1 - alpha) step, whatever they are.
"""

from typing import Annotated, NamedTuple

from fedadmm.algorithms.fedavg import Upload
from fedadmm.core.algorithm import Algorithm, LocalProblem, NoState, Turnout, Vector, zeros_like
from fedadmm.core.optional import AddsOwnSteps, UploadsStep
from fedadmm.core.schedules import PositiveRate, at, within


class Server(NamedTuple):
    theta: Vector
    step: Vector


class FedCM(Algorithm[Server, NoState, Upload], AddsOwnSteps, UploadsStep):
    """Every local step goes along the last mean step as well, so that clients see what the others found.

    alpha = 0.1: the weight of the gradient beside the momentum, above 0 and up to 1.
    eta = 1.0: the server's step along the mean step of the clients; a number or a schedule.
    """

    alpha: Annotated[float, within("a number above 0 and up to 1", lambda share: 0 < share <= 1)] = 0.1
    eta: PositiveRate = 1.0

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, zeros_like(theta))

    def client_update(self, server: Server, client: NoState, problem: LocalProblem) -> tuple[Upload, NoState]:
        m = -server.step / (problem.learning_rate * problem.num_steps)
        w = problem.solve(start=server.theta, dual=(1 - self.alpha) * m).w
        return Upload(w - server.theta), client

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + at(self.eta, turnout.round) * mean.step, mean.step)
