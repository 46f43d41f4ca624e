"""Fast FedADMM: consensus ADMM in its scaled form, with Nesterov's look-ahead; the successor of Algorithm 1.

theta    the point that clients get, ahead of bar          bar      the mean of the models that a round returns
w        a client's model after its local training         average  a running mean of theta: the server's model
mu       a client's scaled dual y / rho, the sum of all its steps w - theta
mu_mean  the mean dual of the clients seen; rho (mu - mu_mean) is the dual that acts, so the duals that act have mean 0
rho      the weight of the quadratic term                  look_ahead  how far theta runs ahead of bar
way      the server's last way: from the bar before to bar

With all clients, exact solves and look_ahead = 0 it is the consensus ADMM of Boyd et al. (2011, section 7.1). With
rho = 0 and a number for look_ahead it is FedACG (CVPR 2024) without its proximal term. A look-ahead that is shortened
when it does harm is from fast ADMM (Goldstein et al., SIAM J. Imaging Sci., 2014). docs/FAMILY.md shows what each part
gives.

look_ahead = "auto" looks ahead in the coordinates alone in which the clients, who began ahead of bar, went on in the
direction of the way: there by AHEAD, elsewhere not at all. That is the restart of O'Donoghue and Candes (Found. Comput.
Math., 2015), made for each coordinate by itself; momentum whose sign is not that of the gradient is left out in the
cautious optimizers of Liang et al. (2024), too. What swings to and fro is not pushed, so what leads on can be pushed
by more than 1. What leads on for ever, as in a loss without a minimum or under an attack, would then run away: so it
never looks further ahead than FARTHEST times the round's own step. The step of one client leads to that client's own
minimum, and the way of few is mostly noise: below ENOUGH uploads in a round the look-ahead is shorter, with one it is
none.

A dual is as old as its client's last visit, and its first steps are noise: it helps the more, the larger the share of
clients in a round is and the more visits have made it. But a full one does harm on networks whose clients have two
classes: the local gradient fades within a visit, and the dual does not. What a round adds to all duals goes as rho
times the share, so above LARGEST_SHARE rho falls again as the share grows. "auto" takes
    rho = stiffness / 2 x min(1, strength x (1 + visits / 10)), with strength = share, or LARGEST_SHARE^2 / share
and counts no more visits than LARGEST_SHARE gives. stiffness.py says what a client measures in the first round. A
change of rho leaves the sums of steps as they are, so mu_mean is exact whatever rho was and in whatever order updates
come.

average = "auto" is the mean of averaged.py that is over more rounds the longer a run is. It is over theta and not bar,
as theta is about as far ahead of bar as such a mean is behind.
"""

import math
from typing import NamedTuple

from fedadmm.algorithms.averaged import updated_average
from fedadmm.algorithms.stiffness import SMALLEST, squared, stiffness
from fedadmm.core.algorithm import Algorithm, LocalProblem, Scalar, Turnout, Vector, zeros_like
from fedadmm.core.optional import CanOmitNumbers, HasInvariant, Invariant, LetsGoOfClients
from fedadmm.core.schedules import ConstantOrAuto, DecayOrAuto

AHEAD = 1.25  # for "auto": how far, where the clients lead on; elsewhere it is 0
FARTHEST = 10.0  # times a round's own step is as far as "auto" looks ahead
ENOUGH = 6  # uploads in a round for all of the look-ahead, for "auto"
SPIKE = 2.0  # a squared step above this many usual ones shortens the look-ahead of its round
GROWTH = 8.0  # usual squared steps that have grown by this factor halve the look-ahead for good
MEMORY = 0.9  # of the usual squared step
LARGEST_SHARE = 1 / 8  # of clients in a round up to which rho grows with it, for "auto"


class Server(NamedTuple):
    theta: Vector
    bar: Vector
    average: Vector
    mu_sum: Vector  # over all clients
    seen: float  # the weight of the clients seen
    applied: float  # the weight of all updates so far
    stiffness: float  # 0 until it is measured
    rho: float  # of the next round
    usual: float  # the running mean of |mean step|^2; 0 before the first round
    least: float  # the smallest that this has been since the look-ahead was last halved
    trust: float  # what is left of the look-ahead


class Client(NamedTuple):
    mu: Vector


class Upload(NamedTuple):
    step: Vector  # w - theta
    stiffness: Scalar  # 0 once the server knows it


class Download(NamedTuple):
    theta: Vector
    mu_mean: Vector
    rho: float


class FastFedADMM(Algorithm[Server, Client, Upload, Download], HasInvariant, LetsGoOfClients, CanOmitNumbers):
    """FedADMM with duals of mean 0, a look-ahead, and a running mean of its models.

    rho = 0.1: the weight of the quadratic term; a number, or "auto", which measures it. 0 switches the duals off.
    look_ahead = 0.85: how far the server looks ahead along its last way, from 0 (none) to below 1. "auto" looks
        further, and only in the coordinates in which the clients went on in the same direction; less far where a
        round has fewer than six clients.
    average = 0.7: how much of a running mean of bar stays from round to round; at 0 the server's model is bar itself.
        "auto" is a mean of theta, over more rounds the longer the run is.
    """

    rho: ConstantOrAuto = "auto"
    look_ahead: DecayOrAuto = "auto"
    average: DecayOrAuto = "auto"

    how_to_omit = "set algorithm.rho to a number, such as 0.1"

    @property
    def uploads_only_vectors(self) -> bool:
        return self.rho != "auto"

    def init_server(self, theta: Vector) -> Server:
        rho = 0.0 if isinstance(self.rho, str) else float(self.rho)
        return Server(theta, theta, theta, zeros_like(theta), 1.0, 0.0, 0.0, rho, usual=0.0, least=0.0, trust=1.0)

    def init_client(self, theta: Vector) -> Client:
        return Client(zeros_like(theta))

    def download(self, server: Server) -> Download:
        return Download(server.theta, server.mu_sum / server.seen, server.rho)

    def client_update(self, server: Download, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        theta = server.theta
        centre = theta - (client.mu - server.mu_mean)  # the dual and the quadratic term in one
        w = problem.solve(start=theta, rho=server.rho, centre=centre).w
        is_wanted = self.rho == "auto" and not server.rho  # in the first round
        found = stiffness(problem, theta=theta, w=w, y=zeros_like(theta), rho=0.0) if is_wanted else 0.0
        step = w - theta
        return Upload(step, found), Client(client.mu + step)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        bar = server.theta + mean.step
        applied, found = server.applied + turnout.active, server.stiffness or mean.stiffness
        visits = applied / turnout.registered  # of a client so far, in the mean
        share = visits / turnout.round  # of the clients in a round
        strength = min(share, LARGEST_SHARE**2 / max(share, LARGEST_SHARE))
        strength *= 1 + min(visits, LARGEST_SHARE * turnout.round) / 10
        size = squared(mean.step)
        spike, guard = _guarded(server, size)
        look_ahead, way = self._ahead(bar - server.bar, mean.step, size, turnout.num_uploads)
        theta = bar + look_ahead * server.trust / spike * way
        return Server(
            theta=theta,
            bar=bar,
            average=updated_average(
                server.average, theta if self.average == "auto" else bar, self.average, turnout.round
            ),
            mu_sum=server.mu_sum + turnout.active * mean.step,
            seen=turnout.seen,
            applied=applied,
            stiffness=found,
            rho=min(1.0, strength) * found / 2 if self.rho == "auto" else server.rho,
            **guard,
        )

    def _ahead(self, way: Vector, step: Vector, size: float, num_uploads: float) -> tuple[float, Vector]:
        if isinstance(self.look_ahead, str):
            way = way * (way * step > 0)
            farthest = FARTHEST * math.sqrt(size / max(squared(way), SMALLEST))
            return min(1.0, max(0.0, num_uploads - 1) / (ENOUGH - 1)) * min(AHEAD, farthest), way
        return self.look_ahead, way

    def model(self, server: Server) -> Vector:
        return server.average

    def without_client(self, server: Server) -> Server:
        # A lost mu that stays in mu_sum would be part of every acting dual, and pull theta for ever.
        return server._replace(mu_sum=server.mu_sum * (1 - 1 / server.seen))

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant:
        mu_mean = server.mu_sum / registered
        return Invariant("mu_sum", mu_mean, lambda client: client.mu, zeros_like(mu_mean), lambda u: u.step)


def _guarded(server: Server, size: float) -> tuple[float, dict[str, float]]:
    """Return by how much a squared mean step is too large, 1 if it is not, and what the server remembers of it.

    A run that diverges grows past GROWTH again and again, until what is left of the look-ahead does no harm.
    """
    if not server.usual:
        return 1.0, {"usual": size, "least": size, "trust": 1.0}
    spike = max(1.0, size / (SPIKE * server.usual))
    usual = MEMORY * server.usual + (1 - MEMORY) * size / spike
    if usual > GROWTH * server.least:
        return spike, {"usual": usual, "least": usual, "trust": server.trust / 2}
    return spike, {"usual": usual, "least": min(usual, server.least), "trust": server.trust}
