"""A-FedPD: aligned federated primal-dual method (Sun, Shen and Tao, NeurIPS 2024).

theta  the mean of a round's models (theta-bar)
z      what clients get and start from (the paper's theta): z = theta + (mean dual) / rho
w      a client's model after its local training
rho    the weight of the quadratic term
mu     a client's dual over rho, less that of the mean client (its lambda_i is rho mu plus the mean of all lambda)
In the paper a client that takes part adds rho (w - z) to its dual, and that of every absent one is moved by the
server's step, rho (next theta - z). So the mean dual over rho is theta - previous, and z = 2 theta - previous; no
absent client's mu changes, and the local problem is f(w) + rho <mu, w> + rho/2 |w - theta|^2.

The paper's server keeps the dual of every client, as w - next theta, by which mu changes, is known when the round is
over. Here a client adds w - z, for z is what the server expects the next theta to be; the server keeps the mean of all
mu and has it taken off again: z and theta + mu_mean travel. With everyone in a round that is the paper's method. With
fewer, all clients share the surprise next theta - z, which in the paper those of the round bear.
"""

from typing import NamedTuple

from fedadmm.algorithms.fedavg import Upload
from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector, zeros_like
from fedadmm.core.optional import HasInvariant, Invariant
from fedadmm.core.schedules import PositiveConstant


class Server(NamedTuple):
    theta: Vector
    previous: Vector  # the theta before
    mu_mean: Vector  # of all clients


class Download(NamedTuple):
    theta: Vector  # z
    centre: Vector  # theta + mu_mean


class Client(NamedTuple):
    mu: Vector


class AFedPD(Algorithm[Server, Client, Upload, Download], HasInvariant):
    """FedDyn whose duals do not age while a client is away, and whose server repeats its whole last step.

    rho = 0.1: the weight of the quadratic term; one number.
    """

    rho: PositiveConstant = 0.1

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, previous=theta, mu_mean=zeros_like(theta))

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta))

    def download(self, server: Server) -> Download:
        theta, previous, mu_mean = server
        return Download(theta + (theta - previous), centre=theta + mu_mean)

    def client_update(self, server: Download, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        z, rho = server.theta, self.rho
        step = problem.solve(start=z, dual=rho * client.mu, rho=rho, centre=server.centre).w - z
        return Upload(step), Client(client.mu + step)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        z = self.download(server).theta
        return Server(z + mean.step, previous=server.theta, mu_mean=server.mu_mean + turnout.share * mean.step)

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant:
        return Invariant("mu_mean", server.mu_mean, lambda client: client.mu, zeros_like(initial), lambda u: u.step)
