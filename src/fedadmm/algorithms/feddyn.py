"""FedDyn: federated learning based on dynamic regularization (Acar et al., ICLR 2021), as dual tracking.

theta  the server's model              w    a client's model after its local training
y      a client's dual (minus the paper's gradient estimate), with y <- y + rho (w - theta)
rho    the weight of the quadratic term (the paper's alpha)
The server's y_sum is the sum of all clients' duals, so the mean dual of N clients is y_sum / N.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.invariant import Books
from fedadmm.core.schedules import Rate, at, check_rate


class Server(NamedTuple):
    theta: Vector
    y_sum: Vector | None  # None in a download: no client needs it


class Client(NamedTuple):
    y: Vector


class Upload(NamedTuple):
    step: Vector  # w - theta


@dataclass(frozen=True)
class FedDyn(Algorithm[Server, Client, Upload]):
    """Clients start from theta with their dual; the server corrects the mean by the mean dual."""

    rho: Rate = 0.1
    over: Literal["all", "seen"] = "all"  # N: the registered clients (the paper's), or those seen so far

    def __post_init__(self) -> None:
        if str(self.rho) == "auto":
            raise InputError('rho="auto" is the choice of feddyn_auto; use name = "feddyn_auto"')
        check_rate("rho", self.rho, positive=True)
        if self.over not in ("all", "seen"):
            raise InputError(f'over={self.over!r} is unknown; use "all" or "seen"')

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, torch.zeros_like(theta))

    def init_client(self, theta: Vector) -> Client:
        return Client(torch.zeros_like(theta))

    def download(self, server: Server) -> Server:
        return Server(server.theta, None)

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        theta, rho = server.theta, at(self.rho, problem.round)
        w = problem.solve(start=theta, dual=client.y, rho=rho, centre=theta)
        return Upload(w - theta), Client(client.y + rho * (w - theta))

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        assert server.y_sum is not None
        rho = at(self.rho, turnout.round)
        y_sum = server.y_sum + rho * turnout.active * mean.step
        y_mean = y_sum / (turnout.registered if self.over == "all" else turnout.seen)
        return Server(server.theta + mean.step + y_mean / rho, y_sum)

    def books(self, server: Server, *, initial: Vector, registered: float) -> Books:
        assert server.y_sum is not None
        y_mean = server.y_sum / registered
        return Books("y_sum", y_mean, lambda client: client.y, torch.zeros_like(y_mean))
