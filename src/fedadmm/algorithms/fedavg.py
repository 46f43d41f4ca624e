"""FedAvg: communication-efficient learning of deep networks (McMahan et al., AISTATS 2017).

theta  the server's model              w    a client's model after its local training
eta    the server's step (1: theta becomes the mean of the w)
"""

from typing import NamedTuple

from fedadmm.core.algorithm import Algorithm, LocalProblem, NoState, Turnout, Vector
from fedadmm.core.optional import UploadsStep
from fedadmm.core.schedules import PositiveRate, at


class Server(NamedTuple):
    theta: Vector


class Upload(NamedTuple):
    step: Vector  # w - theta


class FedAvg(Algorithm[Server, NoState, Upload], UploadsStep):
    """Train from theta, average the steps.

    eta = 1.0: the server's step along the mean step of the clients; a number or a schedule.
    """

    eta: PositiveRate = 1.0

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def client_update(self, server: Server, client: NoState, problem: LocalProblem) -> tuple[Upload, NoState]:
        w = problem.solve(start=server.theta).w
        return Upload(w - server.theta), client

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + at(self.eta, turnout.round) * mean.step)
