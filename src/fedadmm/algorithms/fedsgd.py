"""FedSGD: the baseline of McMahan et al., AISTATS 2017.

theta  the server's model              g    a client's gradient at theta, over all of its examples
The learning rate is the server's step: theta <- theta - learning_rate * mean(g).
"""

from fedadmm.algorithms.fedavg import Server, Upload
from fedadmm.core.algorithm import Algorithm, LocalProblem, NoState, Turnout, Vector
from fedadmm.core.optional import GradientsOnly, UploadsStep


class FedSGD(Algorithm[Server, NoState, Upload], GradientsOnly, UploadsStep):
    """One full-batch gradient per active client."""

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def client_update(self, server: Server, client: NoState, problem: LocalProblem) -> tuple[Upload, NoState]:
        g = problem.gradient(server.theta)
        return Upload(-problem.learning_rate * g), client

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + mean.step)
