"""FedHybrid: a hybrid federated optimization method for heterogeneous clients (Niu and Wei, 2021; IEEE TSP 2023).

theta  the server's model (the paper's x_0)         w  a client's own model (x_i)
rho    the weight of the quadratic term (mu)        y  a client's dual (minus lambda_i)
In every round, with L_i = f_i(w) + <y, w - theta> + rho/2 |w - theta|^2 and P = hess f_i(w) + rho I at the old w:
    gradient clients   w+ = w - alpha grad L_i         y+ = y + beta (w - theta)
    Newton clients     w+ = w - alpha P^-1 grad L_i    y+ = y + beta P (w - theta)
    the server         theta+ = mean(w+ + y+ / rho), the minimiser of the sum of the L_i
Both steps see the old w and theta. This is the form of the authors' published code; only the signs of y are ours.
Here alpha is local.learning_rate for gradient clients and alpha_newton for the others. Only the change of
u = w + y / rho travels: with all clients in a round that is the server's step above, and a lost update harms nobody.
"""

from typing import Annotated, NamedTuple

from fedadmm.algorithms.fedadmm import Server, Upload
from fedadmm.core.algorithm import Algorithm, Turnout, Vector, zeros_like
from fedadmm.core.optional import (
    GradientsOnly,
    HasInvariant,
    HasPersonalModel,
    Invariant,
    NeedsEveryClient,
    SecondOrder,
    SecondOrderProblem,
)
from fedadmm.core.schedules import PositiveConstant, PositiveRate, at, within


class Client(NamedTuple):
    w: Vector
    y: Vector


class FedHybrid(
    Algorithm[Server, Client, Upload], GradientsOnly, HasInvariant, HasPersonalModel, NeedsEveryClient, SecondOrder
):
    """Some clients take gradient steps and the others Newton steps, all of them in every round.

    rho = 1.0: the weight of the quadratic term; one number.
    newton = 0.5: the share of Newton clients, spread evenly over the ids; a client stays what it is.
    beta = 0.5: the step of the duals of gradient clients; a number or a schedule.
    alpha_newton = 1.0: the step of Newton clients; a number or a schedule.
    beta_newton = 0.5: the step of their duals; a number or a schedule.
    """

    rho: PositiveConstant = 1.0
    newton: Annotated[float, within("a share of the clients from 0 to 1", lambda share: 0 <= share <= 1)] = 0.5
    beta: PositiveRate = 0.5
    alpha_newton: PositiveRate = 1.0
    beta_newton: PositiveRate = 0.5

    newcomer = "initial"  # theta is the mean of all u, of which a newcomer's counts as theta^0

    def takes_newton_steps(self, client: int) -> bool:
        """Return whether a client is a Newton client: of the first n, round(newton n) are."""
        return round(self.newton * (client + 1)) > round(self.newton * client)

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def init_client(self, theta: Vector) -> Client:
        return Client(w=theta, y=zeros_like(theta))

    def client_update(  # type: ignore[override]  # a SecondOrder method is given a SecondOrderProblem
        self, server: Server, client: Client, problem: SecondOrderProblem
    ) -> tuple[Upload, Client]:
        (w, y), rho = client, self.rho
        gap = w - server.theta
        step, climb = problem.gradient(w) + y + rho * gap, gap
        alpha, beta = problem.learning_rate, at(self.beta, problem.round)
        if self.takes_newton_steps(problem.client):
            alpha, beta = at(self.alpha_newton, problem.round), at(self.beta_newton, problem.round)
            step = problem.hessian_solve(w, step, rho=rho)
            climb = problem.hessian_product(w, gap) + rho * gap
        new = Client(w - alpha * step, y + beta * climb)
        return Upload((new.w - w) + (new.y - y) / rho), new

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + turnout.share * mean.delta)

    def personal_model(self, client: Client) -> Vector:
        return client.w

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant:
        return Invariant("theta", server.theta, lambda c: c.w + c.y / self.rho, initial, lambda upload: upload.delta)
