"""FedADMM that chooses rho and eta (see fedadmm.py for the symbols, stiffness.py for where rho begins).

z       rho w + y of a client: the mean u that is right where every client has a rho of its own is z_sum / rho_sum
fresh   the mean w of the round's clients; the mean w of all seen is w_sum / rho_sum, of which most are old
apart   the mean |w - theta|^2 of a round; `again` is over the clients that came before, and `moved` their |w - w_old|^2

rho is the mean stiffness of the first round's clients, times sqrt(|w - theta| / |w - w_old|): the two residuals of ADMM
are held together. theta runs ahead of the mean u by fresh less the mean w, as if all clients had come. Where nothing
moves any more both are theta, so it ends at the mean u. The lead shrinks while the clients are drawn apart.
"""

from typing import Literal, NamedTuple, cast

from fedadmm.algorithms import fedadmm
from fedadmm.algorithms.stiffness import Download, squared, stiffness
from fedadmm.core.algorithm import Algorithm, LocalProblem, Scalar, Turnout, Vector, zeros_like
from fedadmm.core.errors import InputError
from fedadmm.core.optional import HasInvariant, HasPersonalModel, Invariant, UploadsMoreThanChange
from fedadmm.core.schedules import Rate, at, check_rate

ALLOWED_GROWTH = 2.0  # of `apart` over its running mean, before the lead shrinks


class Server(NamedTuple):
    theta: Vector
    rho: float  # of the next round, if it is measured
    z_sum: Vector  # over the clients seen
    w_sum: Vector  # of rho w, as far as the uploads tell
    rho_sum: float
    stiffness: float  # 0 until it is measured
    apart: float  # running means, over as many visits as there are clients seen
    apart_again: float
    moved_again: float


class Client(NamedTuple):
    w: Vector
    y: Vector
    rho: float  # of its last visit; 0 before the first, so that it has no part in the sums

    @property
    def z(self) -> Vector:
        return self.rho * self.w + self.y


class Upload(NamedTuple):
    z_change: Vector
    rho: Scalar
    rho_before: Scalar
    stiffness: Scalar
    apart: Scalar
    apart_again: Scalar
    moved_again: Scalar


class FedADMMAuto(
    Algorithm[Server, Client, Upload, Download | fedadmm.Server], HasInvariant, HasPersonalModel, UploadsMoreThanChange
):
    """FedADMM whose rho is measured, and whose theta runs ahead of the mean u and returns to it.

    rho = 0.1: the weight of the quadratic term; "auto", which measures it, or a number or a schedule.
    eta = "seen": the server's step; "auto", or "seen" for the mean u of the clients seen and no lead.
    start = "local": local training starts from theta ("global") or from the client's own w ("local").
    """

    rho: Rate | Literal["auto"] = "auto"
    eta: Literal["auto", "seen"] = "auto"
    start: Literal["local", "global"] = "global"

    def __post_init__(self) -> None:
        if self.rho != "auto":
            check_rate("rho", self.rho, positive=True)
        if self.eta not in ("auto", "seen"):
            raise InputError(f'eta={self.eta!r} is unknown to fedadmm_auto; use "auto" or "seen", or name = "fedadmm"')
        super().__post_init__()

    def init_server(self, theta: Vector) -> Server:
        zeros = zeros_like(theta)
        return Server(theta, 0.0, zeros, zeros, 0.0, 0.0, 0.0, 0.0, 0.0)

    def init_client(self, theta: Vector) -> Client:
        return Client(w=theta, y=zeros_like(theta), rho=0.0)

    def download(self, server: Server) -> Download | fedadmm.Server:
        return Download(server.theta, server.rho) if self.rho == "auto" else fedadmm.Server(server.theta)

    def client_update(
        self, server: Download | fedadmm.Server, client: Client, problem: LocalProblem
    ) -> tuple[Upload, Client]:
        theta = server.theta
        rho = server.rho_for(problem) if isinstance(server, Download) else at(cast(Rate, self.rho), problem.round)
        start = client.w if self.start == "local" else theta
        w = problem.solve(start=start, dual=client.y, rho=rho, centre=theta).w
        new = Client(w, client.y + rho * (w - theta), rho)
        unknown = isinstance(server, Download) and not server.is_measured
        found = stiffness(problem, theta=theta, w=w, y=client.y, rho=rho) if unknown else 0.0
        apart, moved, again = squared(w - theta), squared(w - client.w), 1 - problem.first_visit
        return Upload(new.z - client.z, rho, client.rho, found, apart, again * apart, again * moved), new

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        theta, active = server.theta, turnout.active
        mean_w = server.w_sum / server.rho_sum if server.rho_sum else theta
        # z_change is 2 rho w - rho theta - rho_before w_old: with the mean w in the place of w_old, it tells w.
        fresh = (mean.z_change + mean.rho * theta + mean.rho_before * mean_w) / (2 * mean.rho)
        z_sum = server.z_sum + active * mean.z_change
        w_sum = server.w_sum + active * (mean.rho * fresh - mean.rho_before * mean_w)
        rho_sum = server.rho_sum + active * (mean.rho - mean.rho_before)
        lead = self._calm(server, mean) * (fresh - w_sum / rho_sum)
        share = turnout.share_of_seen
        apart, apart_again, moved_again = (
            old + share * (new - old)
            for old, new in (
                (server.apart, mean.apart),
                (server.apart_again, mean.apart_again),
                (server.moved_again, mean.moved_again),
            )
        )
        found = server.stiffness or mean.stiffness
        balance = (apart_again / moved_again) ** 0.25 if moved_again else 1.0
        sums = (z_sum, w_sum, rho_sum, found, apart, apart_again, moved_again)
        return Server(z_sum / rho_sum + lead, balance * found, *sums)

    def _calm(self, server: Server, mean: Upload) -> float:
        """Return the share of the lead that theta takes: less than all where the clients are drawn apart."""
        if self.eta == "seen":
            return 0.0
        grown = float(mean.apart) / server.apart if server.apart else 1.0
        return min(1.0, ALLOWED_GROWTH / grown) if grown else 1.0

    def personal_model(self, client: Client) -> Vector:
        return client.w

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant:
        mean = server.z_sum / registered
        return Invariant("z_sum", mean, lambda client: client.z, zeros_like(mean), lambda u: u.z_change)
