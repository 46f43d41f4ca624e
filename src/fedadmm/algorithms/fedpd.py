"""FedPD: a federated primal-dual method (Zhang, Hong, Dhople, Yin and Liu, 2020), Algorithm 1.

theta  the server's model (x_0)            w       a client's model (x_i)
rho    the weight of the quadratic term    y       a client's dual (lambda_i)
       (the paper's 1 / eta)               centre  a client's own copy of theta (x_0,i)
All clients compute in every round. Those who communicate send w + y / rho and get the mean of what was sent as their
centre; to the others w + y / rho is their centre itself. In the paper all communicate, or with the probability p
(`silence`) nobody does; where fewer are selected for a round, only they communicate, and the others go on alone.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.schedules import Rate, at, check_rate


class Server(NamedTuple):
    theta: Vector


class Client(NamedTuple):
    w: Vector
    y: Vector
    centre: Vector


class Upload(NamedTuple):
    centre: Vector


@dataclass(frozen=True)
class FedPD(Algorithm[Server, Client, Upload]):
    """A client minimises its augmented Lagrangian around its own centre; the server averages the centres."""

    rho: Rate = 0.1
    silence: float = 0.0

    newcomer = "initial"  # all begin with theta^0; another theta reaches those who communicate

    def __post_init__(self) -> None:
        check_rate("rho", self.rho, positive=True)
        if isinstance(self.silence, bool) or not isinstance(self.silence, int | float) or not 0 <= self.silence < 1:
            raise InputError(
                f"silence={self.silence!r} is no probability below 1; use a number such as 0.5, or 0 for none"
            )

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def init_client(self, theta: Vector) -> Client:
        return Client(w=theta, y=torch.zeros_like(theta), centre=theta)

    def receive(self, server: Server, client: Client) -> Client:
        return client._replace(centre=server.theta)

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        rho = at(self.rho, problem.round)
        w = problem.solve(start=client.w, dual=client.y, rho=rho, centre=client.centre)
        y = client.y + rho * (w - client.centre)
        centre = w + y / rho
        return Upload(centre), Client(w, y, centre)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(mean.centre)

    def own_model(self, client: Client) -> Vector:
        return client.w
