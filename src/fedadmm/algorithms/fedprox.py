"""FedProx: federated optimization in heterogeneous networks (Li et al., MLSys 2020).

theta  the server's model              w    a client's model after its local training
rho    the weight of the proximal term rho/2 |w - theta|^2 (the paper's mu)
"""

from fedadmm.algorithms.fedavg import Server, Upload
from fedadmm.core.algorithm import Algorithm, LocalProblem, NoState, Turnout, Vector
from fedadmm.core.optional import UploadsStep
from fedadmm.core.schedules import NonNegativeRate, at


class FedProx(Algorithm[Server, NoState, Upload], UploadsStep):
    """FedAvg with clients that are held near theta by a proximal term.

    rho = 0.1: the weight of the proximal term rho/2 |w - theta|^2; a number or a schedule.
    """

    rho: NonNegativeRate = 0.1

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def client_update(self, server: Server, client: NoState, problem: LocalProblem) -> tuple[Upload, NoState]:
        w = problem.solve(start=server.theta, rho=at(self.rho, problem.round), centre=server.theta).w
        return Upload(w - server.theta), client

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + mean.step)
