"""FedDC: federated learning with local drift decoupling and correction (Gao et al., CVPR 2022).

theta  the server's model                  w    a client's model after K local steps
h_i    a client's drift: h_i <- h_i + w - theta, kept between its visits; h is the mean of all of them
c_i    a client's gradient estimate, as SCAFFOLD's, kept between its visits; c is the mean of all of them
alpha  the weight of the penalty alpha/2 |w + h_i - theta|^2
A client minimises f(w) + <c - c_i, w> + alpha/2 |w - (theta - h_i)|^2. Then theta <- mean of the w + h.

In the paper theta is the mean of w + h_i; the published code takes the mean of w over the round's clients and that of
h_i over all clients, and so do we. It also divides alpha and c by a client's share of the examples, which we do not.
Its alpha is 0.01 on CIFAR-10.
"""

from typing import NamedTuple

from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector, zeros_like
from fedadmm.core.optional import HasInvariant, Invariant, PlainSGDOnly
from fedadmm.core.schedules import PositiveRate, at


class Server(NamedTuple):
    theta: Vector
    c: Vector
    h: Vector


class Download(NamedTuple):
    theta: Vector
    c: Vector


class Client(NamedTuple):
    h_i: Vector
    c_i: Vector


class Upload(NamedTuple):
    step: Vector  # w - theta, which is the change of h_i too
    c_change: Vector


class FedDC(Algorithm[Server, Client, Upload, Download], HasInvariant, PlainSGDOnly):
    """A client bears its drift in a variable of its own, and theta is corrected by the mean of all.

    Plain SGD only: c_i reads the mean gradient off w, so a step must be the gradient and no more.

    alpha = 0.01: the weight of the penalty alpha/2 |w + h_i - theta|^2; a number or a schedule.
    """

    alpha: PositiveRate = 0.01

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, zeros_like(theta), zeros_like(theta))

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta), zeros_like(theta))

    def download(self, server: Server) -> Download:
        return Download(server.theta, server.c)

    def client_update(self, server: Download, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        (theta, c), (h_i, c_i) = server, client
        alpha = at(self.alpha, problem.round)
        w, num_steps = problem.solve(start=theta, dual=c - c_i, rho=alpha, centre=theta - h_i)
        new = c_i - c + (theta - w) / (num_steps * problem.learning_rate)
        return Upload(w - theta, new - c_i), Client(h_i + (w - theta), new)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        h = server.h + turnout.share * mean.step
        return Server(server.theta + mean.step + h, server.c + turnout.share * mean.c_change, h)

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant:
        import torch

        held = torch.cat([server.c, server.h])

        def share(client: Client) -> Vector:
            return torch.cat([client.c_i, client.h_i])

        return Invariant("c, h", held, share, zeros_like(held), lambda u: torch.cat([u.c_change, u.step]))
