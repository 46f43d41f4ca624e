"""FedDyn that chooses rho (see feddyn.py for the symbols, stiffness.py for where rho comes from).

push    rho (w - theta) of a client, which is the change of its dual: exact, whatever rho the client used

rho is the mean stiffness of the first round's clients, and half of it while all of a round's clients are new.
"""

from typing import Literal, NamedTuple

from fedadmm.algorithms.feddyn import Client
from fedadmm.algorithms.stiffness import Download, stiffness
from fedadmm.core.algorithm import Algorithm, LocalProblem, Scalar, Turnout, Vector, zeros_like
from fedadmm.core.optional import HasInvariant, Invariant

WHILE_NEW = 0.5  # of the stiffness: a loose rho gains more at the start


class Server(NamedTuple):
    theta: Vector
    rho: float  # of the next round
    y_sum: Vector
    stiffness: float  # 0 until it is measured


class Upload(NamedTuple):
    push: Vector
    rho: Scalar
    stiffness: Scalar
    first: Scalar  # 1 on a client's first visit


class FedDynAuto(Algorithm[Server, Client, Upload, Download], HasInvariant):
    """Dual tracking whose rho is measured.

    over = "seen": whose mean dual the server takes: that of all clients ("all"), or of those seen so far ("seen").
    """

    over: Literal["all", "seen"] = "seen"

    def init_server(self, theta: Vector) -> Server:
        return Server(theta, 0.0, zeros_like(theta), 0.0)

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta))

    def download(self, server: Server) -> Download:
        return Download(server.theta, server.rho)

    def client_update(self, server: Download, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        theta, rho = server.theta, server.rho_for(problem)
        w = problem.solve(start=theta, dual=client.y, rho=rho, centre=theta).w
        push = rho * (w - theta)
        found = 0.0 if server.is_measured else stiffness(problem, theta=theta, w=w, y=client.y, rho=rho)
        return Upload(push, rho, found, 1.0 * problem.first_visit), Client(client.y + push)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        y_sum = server.y_sum + turnout.active * mean.push
        y_mean = y_sum / (turnout.registered if self.over == "all" else turnout.seen)
        found = server.stiffness or mean.stiffness
        rho = found * (1 - (1 - WHILE_NEW) * mean.first)
        return Server(server.theta + (mean.push + y_mean) / mean.rho, rho, y_sum, found)

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant:
        y_mean = server.y_sum / registered
        return Invariant("y_sum", y_mean, lambda client: client.y, zeros_like(y_mean), lambda u: u.push)
