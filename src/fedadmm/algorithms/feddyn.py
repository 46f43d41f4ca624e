"""FedDyn: federated learning based on dynamic regularization (Acar et al., ICLR 2021), as dual tracking.

theta  the server's model              w    a client's model after its local training
y      a client's dual (minus the paper's gradient estimate), with y <- y + rho (w - theta)
rho    the weight of the quadratic term (the paper's alpha)
The server's y_sum is the sum of all clients' duals, so the mean dual of N clients is y_sum / N.
"""

from typing import Literal, NamedTuple

from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector, zeros_like
from fedadmm.core.errors import InputError
from fedadmm.core.optional import HasInvariant, Invariant
from fedadmm.core.schedules import PositiveRate, Schedule, at


class Server(NamedTuple):
    theta: Vector
    y_sum: Vector


class Download(NamedTuple):
    theta: Vector


class Client(NamedTuple):
    y: Vector


class Upload(NamedTuple):
    step: Vector  # w - theta


class FedDyn(Algorithm[Server, Client, Upload, Download], HasInvariant):
    """Clients start from theta with their dual; the server corrects the mean by the mean dual.

    rho = 0.1: the weight of the quadratic term; a number or a schedule.
    over = "seen": whose mean dual the server takes: that of all clients ("all"), or of those seen so far ("seen").
    """

    rho: PositiveRate = 0.1
    over: Literal["all", "seen"] = "all"  # N: the registered clients (the paper's), or those seen so far

    def __post_init__(self) -> None:
        if str(self.rho) == "auto":
            raise InputError('rho="auto" is the choice of feddyn_auto; use name = "feddyn_auto"')
        super().__post_init__()

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, zeros_like(theta))

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta))

    def download(self, server: Server) -> Download:
        return Download(server.theta)

    def client_update(self, server: Download, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        theta, rho = server.theta, at(self.rho, problem.round)
        w = problem.solve(start=theta, dual=client.y, rho=rho, centre=theta).w
        return Upload(w - theta), Client(client.y + rho * (w - theta))

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        rho = at(self.rho, turnout.round)
        y_sum = server.y_sum + rho * turnout.active * mean.step
        y_mean = y_sum / (turnout.registered if self.over == "all" else turnout.seen)
        return Server(server.theta + mean.step + y_mean / rho, y_sum)

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant:
        y_mean, rho = server.y_sum / registered, self.rho
        # What was held back under one rho is added up under another.
        adds = None if isinstance(rho, Schedule) else lambda upload: rho * upload.step
        return Invariant("y_sum", y_mean, lambda client: client.y, zeros_like(y_mean), adds)
