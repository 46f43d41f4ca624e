"""FedADMM: Algorithm 1 of Gong, Li and Freris, ICDE 2022.

theta  the server's model                  w  a client's own model (w_i), kept between its visits
rho    the weight of the quadratic term    y  a client's dual (y_i), kept between its visits
eta    the server's step                   u  the augmented model w + y / rho; only its change, delta, travels
"""

from typing import Literal, NamedTuple

from fedadmm.core.algorithm import Algorithm, LocalProblem, Newcomer, Turnout, Vector, zeros_like
from fedadmm.core.errors import InputError
from fedadmm.core.optional import CorrectsLateNewcomers, HasInvariant, HasPersonalModel, Invariant
from fedadmm.core.schedules import Constant, PositiveRate, Rate, Schedule, at, check_rate


class Server(NamedTuple):
    theta: Vector


class Client(NamedTuple):
    w: Vector
    y: Vector
    rho: float  # of its last visit: the server knows u as it was made with this rho

    @property
    def u(self) -> Vector:
        return (self.y / self.rho).add_(self.w)  # w + y / rho, in place: of a large model, each vector is much


class Upload(NamedTuple):
    delta: Vector


class FedADMM(Algorithm[Server, Client, Upload], HasInvariant, HasPersonalModel, CorrectsLateNewcomers):
    """A client minimises its augmented Lagrangian inexactly; the server adds the mean change of u.

    rho = 0.1: the weight of the quadratic term rho/2 |w - theta|^2; a number or a schedule.
    eta = "seen": the server's step. A number or a schedule (1 in the paper's experiments), "participation" for |S|/m
        (Theorem 1), which keeps theta the mean of all u, or "seen" for |S| over the clients seen, the mean of their u.
        A constant keeps no such invariant: where it ends depends on where it began.
    start = "global": local training starts from the client's own w ("local", choice I) or from theta ("global", choice
        II).
    newcomer = "initial": a client's first w is theta^0 ("initial", as in the analysis) or the theta it downloads
        ("current").
    """

    rho: PositiveRate = 0.01
    eta: Rate | Literal["participation", "seen"] = 1.0
    start: Literal["local", "global"] = "local"
    newcomer: Newcomer = "current"

    def __post_init__(self) -> None:
        if "auto" in (self.rho, self.eta):
            raise InputError('"auto" is the choice of fedadmm_auto, another method; use name = "fedadmm_auto"')
        super().__post_init__()
        if self.eta == "participation" and self.newcomer != "initial":
            raise InputError(
                'eta="participation" keeps theta the mean of all u, and a newcomer\'s u counts as theta^0 there; '
                'use newcomer="initial"'
            )
        if self.eta == "seen" and self.newcomer != "current":
            raise InputError(
                'eta="seen" keeps theta the mean of the u seen, and a newcomer must join at theta there; '
                'use newcomer="current"'
            )
        if isinstance(self.eta, str) and self.eta not in ("participation", "seen"):
            raise InputError(f'eta={self.eta!r} is unknown; use a number, "participation" or "seen"')
        if isinstance(self.eta, str) and isinstance(self.rho, Schedule) and not isinstance(self.rho, Constant):
            raise InputError(
                f'eta="{self.eta}" keeps theta the plain mean of u = w + y / rho, which is off the optimum while '
                "clients have rhos of different rounds; use one rho for all rounds, a number for eta, or fedadmm_auto, "
                "which weights u by rho"
            )
        if not isinstance(self.eta, str):
            check_rate("eta", self.eta, positive=True)

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def init_client(self, theta: Vector) -> Client:
        return Client(w=theta, y=zeros_like(theta), rho=at(self.rho, 1))

    def client_update(self, server: Server, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        theta, rho = server.theta, at(self.rho, problem.round)
        start = client.w if self.start == "local" else theta
        w = problem.solve(start=start, dual=client.y, rho=rho, centre=theta).w  # lines 14 to 19
        y = client.y + rho * (w - theta)  # line 20
        new = Client(w, y, rho)
        return Upload(new.u.sub_(client.u)), new  # the old u is as the server last saw it: rho may have changed since

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        shares = {"participation": turnout.share, "seen": turnout.share_of_seen}
        eta = shares[self.eta] if isinstance(self.eta, str) else at(self.eta, turnout.round)
        return Server(server.theta + eta * mean.delta)

    def late_upload(self, upload: Upload, *, then: Server, now: Server) -> Upload:
        # A mean over the seen takes a newcomer in at the theta of that moment, not at the one it was sent.
        return Upload(upload.delta + (then.theta - now.theta)) if self.eta == "seen" else upload

    def personal_model(self, client: Client) -> Vector:
        return client.w

    def invariant(self, server: Server, *, initial: Vector, registered: float) -> Invariant | None:
        if not isinstance(self.eta, str):
            return None
        unseen = initial if self.eta == "participation" else None
        return Invariant("theta", server.theta, lambda client: client.u, unseen, lambda upload: upload.delta)
