"""FedPD: a federated primal-dual method (Zhang, Hong, Dhople, Yin and Liu, 2020), Algorithm 1.

theta  the server's model (x_0)            w       a client's model (x_i)
rho    the weight of the quadratic term    y       a client's dual (lambda_i)
       (the paper's 1 / eta)               centre  a client's own copy of theta (x_0,i)
All clients compute in every round. Those who communicate send w + y / rho and get the mean of what was sent as their
centre; to the others w + y / rho is their centre itself. In the paper all communicate, or with the probability p
(`skip_probability`) nobody does; where fewer are selected for a round, only they communicate, and the others do not.
"""

from typing import Annotated, NamedTuple

from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector, zeros_like
from fedadmm.core.optional import HasPersonalModel, SkipsCommunication
from fedadmm.core.schedules import PositiveRate, at, within


class Server(NamedTuple):
    theta: Vector


class Client(NamedTuple):
    w: Vector
    y: Vector
    centre: Vector


class Upload(NamedTuple):
    centre: Vector


class FedPD(Algorithm[Server, Client, Upload], HasPersonalModel, SkipsCommunication):
    """A client minimises its augmented Lagrangian around its own centre; the server averages the centres.

    rho = 0.1: the weight of the quadratic term; a number or a schedule.
    skip_probability = 0.5: with which nobody communicates in a round, and clients go on from centres of their own.
    """

    rho: PositiveRate = 0.1
    skip_probability: Annotated[float, within("a probability below 1, such as 0.5", lambda p: 0 <= p < 1)] = 0.0

    newcomer = "initial"  # all begin with theta^0; another theta reaches those who communicate

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def init_client(self, theta: Vector) -> Client:
        return Client(w=theta, y=zeros_like(theta), centre=theta)

    def receive(self, server: Server, client: Client) -> Client:
        return client._replace(centre=server.theta)

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        rho = at(self.rho, problem.round)
        w = problem.solve(start=client.w, dual=client.y, rho=rho, centre=client.centre).w
        y = client.y + rho * (w - client.centre)
        centre = w + y / rho
        return Upload(centre), Client(w, y, centre)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(mean.centre)

    def personal_model(self, client: Client) -> Vector:
        return client.w
