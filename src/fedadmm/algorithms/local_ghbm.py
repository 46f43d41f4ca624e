"""LocalGHBM: generalized heavy-ball momentum from what a client remembers (Zaccone et al., TMLR 2025).

theta   the server's model                 w     a client's model after K local steps
anchor  the theta that a client got at its last visit, tau rounds ago, kept between its visits
m       the server's mean step in a round since then: (theta - anchor) / tau
beta    how much of m a client goes along
lr      the learning rate of the round
A local step is lr (g - beta m / (lr K)): over its K steps a client moves by beta m beside its gradients. With tau = 1
that is the heavy ball; a longer tau sees the steps of more clients, all of them if they come in turn.

The published code has the share of clients in a round in the place of 1 / tau, which it is in the mean. On a client's
first visit m is 0.
"""

from typing import NamedTuple

from fedadmm.algorithms.fedavg import Server, Upload
from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector
from fedadmm.core.optional import AddsOwnSteps, UploadsStep
from fedadmm.core.schedules import NonNegativeRate, at


class Client(NamedTuple):
    anchor: Vector


class LocalGHBM(Algorithm[Server, Client, Upload], AddsOwnSteps, UploadsStep):
    """Every local step goes along the way that the server went since the client was last there.

    beta = 0.9: how much of that way a client goes along; a number or a schedule.
    """

    beta: NonNegativeRate = 0.9

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def init_client(self, theta: Vector) -> Client:
        return Client(anchor=theta)

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        theta = server.theta
        m = (theta - client.anchor) / (problem.round - problem.last_round)
        per_step = at(self.beta, problem.round) * m / (problem.learning_rate * problem.num_steps)
        w = problem.solve(start=theta, dual=-per_step).w
        return Upload(w - theta), Client(anchor=theta.clone())

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + mean.step)
