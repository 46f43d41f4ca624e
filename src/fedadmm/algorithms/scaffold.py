"""SCAFFOLD: stochastic controlled averaging for federated learning (Karimireddy et al., ICML 2020), option II.

theta  the server's model              w    a client's model after K local steps
c      the server's control variate    c_i  a client's control variate
eta    the server's step (the paper's eta_g)
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector
from fedadmm.core.invariant import Books
from fedadmm.core.schedules import Rate, at, check_rate


class Server(NamedTuple):
    theta: Vector
    c: Vector


class Client(NamedTuple):
    c_i: Vector


class Upload(NamedTuple):
    step: Vector  # w - theta
    c_change: Vector  # the change of c_i


@dataclass(frozen=True)
class Scaffold(Algorithm[Server, Client, Upload]):
    """Local gradients corrected by c - c_i, so that clients do not drift apart."""

    eta: Rate = 1.0

    plain_sgd_only = True  # option II reads the mean gradient off w: a step must be the gradient, no more
    uploads_step = True

    def __post_init__(self) -> None:
        check_rate("eta", self.eta, positive=True)

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, torch.zeros_like(theta))

    def init_client(self, theta: Vector) -> Client:
        return Client(torch.zeros_like(theta))

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        theta, c = server
        w = problem.solve(start=theta, dual=c - client.c_i)
        c_i = client.c_i - c + (theta - w) / (problem.num_steps * problem.learning_rate)
        return Upload(w - theta, c_i - client.c_i), Client(c_i)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        theta = server.theta + at(self.eta, turnout.round) * mean.step
        c = server.c + turnout.active / turnout.registered * mean.c_change
        return Server(theta, c)

    def books(self, server: Server, *, initial: Vector, registered: float) -> Books:
        return Books("c", server.c, lambda client: client.c_i, torch.zeros_like(server.c))
