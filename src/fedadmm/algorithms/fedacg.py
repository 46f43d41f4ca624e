"""FedACG: federated learning with accelerated client gradient (Kim, Kim and Han, CVPR 2024), Algorithm 1.

theta  the server's model                  w     a client's model after its local training
m      the server's momentum               lam   how far ahead the server looks (the paper's lambda)
beta   the weight of the proximal term beta/2 |w - z|^2, with z = theta + lam m, the point that clients get
The paper's server: m <- lam m + mean(w - z), theta <- theta + m. So theta is the mean of the clients' models, and m is
its last step, theta - previous: Nesterov's momentum, with the clients' training in the place of a gradient step.

The defaults are those of the published code, whose proximal term is 0.001 |w - z|^2, without the half.
"""

from typing import NamedTuple

from fedadmm.algorithms.fedavg import Upload
from fedadmm.algorithms.feddyn import Download
from fedadmm.core.algorithm import Algorithm, LocalProblem, NoState, Turnout, Vector
from fedadmm.core.schedules import Decay, NonNegativeRate, at


class Server(NamedTuple):
    theta: Vector
    previous: Vector  # the theta before: it is kept, not m, so that all that is broadcast follows from published models


class FedACG(Algorithm[Server, NoState, Upload, Download]):
    """Clients train from a point ahead of theta, where the momentum leads, and are held near it.

    lam = 0.85: how far ahead along its last step the server looks, from 0 to below 1.
    beta = 0.002: the weight of the proximal term; a number or a schedule.
    """

    lam: Decay = 0.85
    beta: NonNegativeRate = 0.002

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, previous=theta)

    def download(self, server: Server) -> Download:
        m = server.theta - server.previous
        return Download(server.theta + self.lam * m)

    def client_update(self, server: Download, client: NoState, problem: LocalProblem) -> tuple[Upload, NoState]:
        z = server.theta
        w = problem.solve(start=z, rho=at(self.beta, problem.round), centre=z).w
        return Upload(w - z), client

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        z = self.download(server).theta
        return Server(z + mean.step, previous=server.theta)
