"""SCAFFOLD: stochastic controlled averaging for federated learning (Karimireddy et al., ICML 2020), option II.

theta  the server's model              w    a client's model after K local steps
c      the server's control variate    c_i  a client's control variate
eta    the server's step (the paper's eta_g)
"""

from typing import NamedTuple

from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector, zeros_like
from fedadmm.core.optional import HasInvariant, Invariant, PlainSGDOnly, UploadsStep
from fedadmm.core.schedules import PositiveRate, at


class Server(NamedTuple):
    theta: Vector
    c: Vector


class Client(NamedTuple):
    c_i: Vector


class Upload(NamedTuple):
    step: Vector  # w - theta
    c_change: Vector  # the change of c_i


class Scaffold(Algorithm[Server, Client, Upload], HasInvariant, PlainSGDOnly, UploadsStep):
    """Local gradients corrected by c - c_i, so that clients do not drift apart.

    Plain SGD only: option II reads the mean gradient off w, so a step must be the gradient and no more.

    eta = 1.0: the server's step along the mean step of the clients; a number or a schedule.
    """

    eta: PositiveRate = 1.0

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, zeros_like(theta))

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta))

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        w, num_steps = problem.solve(start=server.theta, dual=server.c - client.c_i)
        c_i = client.c_i - server.c + (server.theta - w) / (num_steps * problem.learning_rate)
        return Upload(w - server.theta, c_i - client.c_i), Client(c_i)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + at(self.eta, turnout.round) * mean.step, server.c + turnout.share * mean.c_change)

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant:
        return Invariant("c", server.c, lambda client: client.c_i, zeros_like(server.c), lambda u: u.c_change)
