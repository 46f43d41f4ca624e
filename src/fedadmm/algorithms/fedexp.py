"""FedExP: speeding up federated averaging via extrapolation (Jhunjhunwala, Wang and Joshi, ICLR 2023), Algorithm 1.

theta    the server's model                w      a client's model after its local training
step     w - theta (minus the paper's Delta_i)
epsilon  keeps the server's step from growing where the clients' mean step is small
eta      the server's step (eta_g): max(1, mean |step|^2 / (2 (|mean step|^2 + epsilon))), large where clients disagree
The model is the mean of the last two theta, as these steps swing.

The published code multiplies epsilon by the number of clients in a round and lets it fall with the square of the
learning rate; the paper does not. After round 1 the code's model is theta, here the mean with theta^0.
"""

from typing import NamedTuple

from fedadmm.algorithms.fedacg import Server
from fedadmm.algorithms.feddyn import Download
from fedadmm.algorithms.stiffness import squared
from fedadmm.core.algorithm import Algorithm, LocalProblem, NoState, Scalar, Turnout, Vector
from fedadmm.core.schedules import PositiveRate, at


class Upload(NamedTuple):
    step: Vector
    squared: Scalar  # |step|^2


class FedExP(Algorithm[Server, NoState, Upload, Download]):
    """FedAvg with a server's step of at least 1 that comes from the spread of the clients' steps.

    epsilon = 0.001: keeps the step from growing where the mean step is small; a number or a schedule.
    """

    epsilon: PositiveRate = 0.001

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, previous=theta)

    def download(self, server: Server) -> Download:
        return Download(server.theta)

    def client_update(self, server: Download, client: NoState, problem: LocalProblem) -> tuple[Upload, NoState]:
        step = problem.solve(start=server.theta).w - server.theta
        return Upload(step, squared(step)), client

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        epsilon = at(self.epsilon, turnout.round)
        eta = max(1.0, mean.squared / (2 * (squared(mean.step) + epsilon)))
        return Server(server.theta + eta * mean.step, previous=server.theta)

    def model(self, server: Server) -> Vector:
        return (server.theta + server.previous) / 2
