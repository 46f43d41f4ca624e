"""FedSGD: the baseline of McMahan et al., AISTATS 2017.

theta  the server's model              g    a client's gradient at theta, over all of its examples
The learning rate is the server's step: theta <- theta - learning_rate * mean(g).
"""

from dataclasses import dataclass

from fedadmm.algorithms.fedavg import Client, Server, Upload
from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector


@dataclass(frozen=True)
class FedSGD(Algorithm[Server, Client, Upload]):
    """One full-batch gradient per active client."""

    uploads_step = True

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def init_client(self, theta: Vector) -> Client:
        return Client()

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        g = problem.gradient(server.theta)
        return Upload(-problem.learning_rate * g), client

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + mean.step)
