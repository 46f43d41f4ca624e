"""FedADMM as its authors' released code runs it, which is not Algorithm 1 (see fedadmm.py for the symbols).

Training starts from theta, and the old w in the message is theta too, so the message is
(w + y_new / rho) - (theta + y / rho) = 2 (w - theta), and a client keeps its dual alone.
The server's step is 1, and 0.5 from round 60 on.
"""

from typing import NamedTuple

from fedadmm.algorithms.fedadmm import Server, Upload
from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector, zeros_like
from fedadmm.core.optional import UploadsStep
from fedadmm.core.schedules import PositiveRate, Step, at


class Client(NamedTuple):
    y: Vector


HALVED_AT_ROUND_60 = Step(before=1.0, after=0.5, at_round=60)


class FedADMMReleased(Algorithm[Server, Client, Upload], UploadsStep):
    """The variant behind the published code: duals, but no model of a client's own.

    rho = 0.1: the weight of the quadratic term; a number or a schedule.
    eta = 1.0: the server's step; a number or a schedule, which by default is that of the released code.
    """

    rho: PositiveRate = 0.01
    eta: PositiveRate = HALVED_AT_ROUND_60

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta))

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        theta, rho = server.theta, at(self.rho, problem.round)
        w = problem.solve(start=theta, dual=client.y, rho=rho, centre=theta).w
        return Upload(2 * (w - theta)), Client(client.y + rho * (w - theta))

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + at(self.eta, turnout.round) * mean.delta)
