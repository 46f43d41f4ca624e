"""FedNova: tackling the objective inconsistency problem (Wang et al., NeurIPS 2020), without momentum.

theta  the server's model              w    a client's model after its local training
tau    a client's number of local steps (tau_i); their mean over the round's clients is the paper's tau_eff
d      a client's step per local step, (w - theta) / tau_i
"""

from typing import NamedTuple

from fedadmm.algorithms.fedavg import Server
from fedadmm.core.algorithm import Algorithm, LocalProblem, NoState, Turnout, Vector
from fedadmm.core.optional import PlainSGDOnly, UploadsStep
from fedadmm.core.schedules import PositiveRate, at


class Upload(NamedTuple):
    d: Vector
    tau: float


class FedNova(Algorithm[Server, NoState, Upload], PlainSGDOnly, UploadsStep):
    """FedAvg in which a client that takes more local steps has no more say: theta <- theta + eta tau_eff mean(d).

    Plain SGD only: with momentum or weight decay a client's steps do not weigh the same.

    eta = 1.0: the server's step; a number or a schedule.
    """

    eta: PositiveRate = 1.0

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def client_update(self, server: Server, client: NoState, problem: LocalProblem) -> tuple[Upload, NoState]:
        w, num_steps = problem.solve(start=server.theta)
        tau = 1.0 * num_steps
        return Upload((w - server.theta) / tau, tau), client

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + at(self.eta, turnout.round) * mean.tau * mean.d)
