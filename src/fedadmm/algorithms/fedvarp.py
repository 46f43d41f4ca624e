"""FedVARP (Jhunjhunwala et al., UAI 2022) and MIFA (Gu et al., NeurIPS 2021): the absent count with their last step.

theta  the server's model                  w    a client's model after its local training
g      a client's last (theta - w) / lr, kept between its visits: the sum of its local gradients (FedVARP's y_i, MIFA's
       G_i); the papers have a table of all of them at the server, here the server has their mean, or their sum
lr     the learning rate of the round      eta  the server's step beside it
FedVARP: theta <- theta - eta lr (mean over S of (new g - old g) + mean of all old g), where a client never seen has 0.
MIFA:    theta <- theta - lr (mean of all g), over the clients seen so far.

FedVARP's paper divides by the number of local steps and multiplies by it at the server; that is the same where all
clients take as many. MIFA's asks all clients for a first g, and its published code waits until all have been there;
here the rounds before that count, with the g that are known.
"""

from typing import NamedTuple

from fedadmm.algorithms.feddyn import Download
from fedadmm.core.algorithm import Algorithm, LocalProblem, ServerT, Turnout, Vector, zeros_like
from fedadmm.core.optional import HasInvariant, Invariant
from fedadmm.core.schedules import PositiveRate, at


class Client(NamedTuple):
    g: Vector


class Upload(NamedTuple):
    change: Vector  # of g: the server never needs g itself
    lr: float


class KeepsGradient(Algorithm[ServerT, Client, Upload, Download], HasInvariant):
    """The client's half of both: train from theta, and send by how much g has changed."""

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta))

    def download(self, server: ServerT) -> Download:
        return Download(server.theta)

    def client_update(self, server: Download, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        w, lr = problem.solve(start=server.theta).w, problem.learning_rate
        g = (server.theta - w) / lr
        return Upload(g - client.g, lr), Client(g)


class VARPServer(NamedTuple):
    theta: Vector
    g_mean: Vector  # of all clients


class FedVARP(KeepsGradient[VARPServer]):
    """The mean step of a round, corrected by what its clients' last steps were against everybody's.

    eta = 1.0: the server's step along the mean step of the clients; a number or a schedule.
    """

    eta: PositiveRate = 1.0

    def init_server(self, theta: Vector) -> VARPServer:
        return VARPServer(theta, zeros_like(theta))

    def server_update(self, server: VARPServer, mean: Upload, turnout: Turnout) -> VARPServer:
        v = mean.change + server.g_mean
        theta = server.theta - at(self.eta, turnout.round) * mean.lr * v
        return VARPServer(theta, server.g_mean + turnout.share * mean.change)

    def invariant(self, server: VARPServer, *, initial: Vector, registered: float) -> Invariant:
        return Invariant("g_mean", server.g_mean, lambda client: client.g, zeros_like(initial), lambda u: u.change)


class MIFAServer(NamedTuple):
    theta: Vector
    g_sum: Vector  # of the clients seen


class MIFA(KeepsGradient[MIFAServer]):
    """Every round takes the mean of the last steps of all clients that were ever there."""

    def init_server(self, theta: Vector) -> MIFAServer:
        return MIFAServer(theta, zeros_like(theta))

    def server_update(self, server: MIFAServer, mean: Upload, turnout: Turnout) -> MIFAServer:
        g_sum = server.g_sum + turnout.active * mean.change
        return MIFAServer(server.theta - mean.lr * g_sum / turnout.seen, g_sum)

    def invariant(self, server: MIFAServer, *, initial: Vector, registered: float) -> Invariant:
        g_mean = server.g_sum / registered
        return Invariant("g_sum", g_mean, lambda client: client.g, zeros_like(initial), lambda u: u.change)
