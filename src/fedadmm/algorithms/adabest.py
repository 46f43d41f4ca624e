"""AdaBest: minimizing client drift via adaptive bias estimation (Varno et al., ECCV 2022), Algorithm 1.

theta  the mean of a round's models (the paper's theta-bar, its aggregate model)
z      what clients get (the paper's theta, its cloud model): z = theta - h
h      the server's estimate of the drift: h = beta (previous theta - theta)
h_i    a client's estimate of its own drift, by which its local gradients are corrected, kept between its visits:
       h_i <- h_i / (t - t_i) + mu (z - w), where t_i is the round of its last visit
beta   how much of the server's last step is taken once more
mu     the weight of a client's new estimate
The model is theta, the mean. The published code (fedsim) reports it and the cloud model. Its mu is 0.1, divided by the
number of local steps of an epoch, and it also puts mu into the local step and not into h_i; beta is 0.85.
"""

from typing import NamedTuple

from fedadmm.algorithms.fedacg import Server
from fedadmm.algorithms.fedavg import Upload
from fedadmm.algorithms.feddyn import Download
from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector, zeros_like
from fedadmm.core.schedules import Decay, NonNegativeConstant


class Client(NamedTuple):
    h_i: Vector


class AdaBest(Algorithm[Server, Client, Upload, Download]):
    """Clients correct their drift by an estimate that fades while they are away; the server repeats a part of its step.

    Its sum over the clients is nobody's: a client that stays away keeps its h_i, and the server does not know it.

    beta = 0.85: how much of the server's last step is taken once more, from 0 to below 1.
    mu = 0.02: the weight of a client's new estimate of its drift; one number.
    """

    beta: Decay = 0.85
    mu: NonNegativeConstant = 0.02

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, previous=theta)

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta))

    def download(self, server: Server) -> Download:
        h = self.beta * (server.previous - server.theta)
        return Download(server.theta - h)

    def client_update(self, server: Download, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        z = server.theta
        w = problem.solve(start=z, dual=-client.h_i).w
        h_i = client.h_i / (problem.round - problem.last_round) + self.mu * (z - w)
        return Upload(w - z), Client(h_i)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        z = self.download(server).theta
        return Server(z + mean.step, previous=server.theta)
