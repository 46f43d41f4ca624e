"""A server that sometimes sits out, as in the randomised ADMM of Hong, Luo and Razaviyayn (SIAM J. Optim., 2016).

theta  the server's model as clients know it       ahead  what theta would be, had the server never sat out
awake  the probability with which the server takes part in a round
In a round in which it sits out, clients work on with the theta they know, their uploads count in `ahead`, and
theta stays; when it takes part again theta becomes `ahead`. Around FedADMM with exact solves and a probability for each
client, this is the randomised ADMM: theta <- mean of all (w_i + y_i / rho), but only if the server's own coin says so.
A round without any client leaves the server as it is, so its coin counts in rounds that somebody takes part in.
"""

from typing import Annotated, Any

from fedadmm.algorithms.fedadmm import FedADMM
from fedadmm.algorithms.wrapper import Wrapper
from fedadmm.core.algorithm import AnyAlgorithm, Turnout, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.optional import Invariant, invariant_of
from fedadmm.core.schedules import within
from fedadmm.core.seeds import check_seed, stream

AS_ANALYSED = FedADMM(rho=1.0, eta="participation", newcomer="initial")


class RandomisedServer(Wrapper):
    """An algorithm whose server takes part in some rounds only.

    awake = 0.5: the probability with which it takes part in a round, above 0.
    seed = 3: of the server's coin. Left out: the run's seed, or 0 where there is no run.
    inner = {name = "fedadmm", rho = 1.0, eta = "participation", newcomer = "initial"}: the algorithm.
    """

    awake: Annotated[float, within("a probability above 0 and up to 1", lambda p: 0 < p <= 1)] = 0.5
    seed: int | None = None
    inner: AnyAlgorithm = AS_ANALYSED

    memory = ("ahead",)

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_seed(self.seed)
        super().__post_init__()

    def check_inner(self) -> None:
        super().check_inner()
        if not self._is_mean_of_all():
            raise InputError(
                f"{self.inner} does not keep theta the mean of what all clients hold, so its server cannot sit out; "
                'use FedADMM with eta="participation" and newcomer="initial"'
            )

    def _is_mean_of_all(self) -> bool:
        """Return whether the inner algorithm keeps theta the mean of what all clients hold."""
        if isinstance(self.inner, FedADMM):
            return self.inner.eta == "participation"
        import torch  # not for FedADMM, with which the presets are listed

        zero = torch.zeros(1)
        found = invariant_of(self.inner, self.inner.init_server(zero), initial=zero, registered=1.0)
        return found is not None and found.name == "theta" and found.unseen is not None

    def is_awake(self, round: int) -> bool:
        """Return whether the server takes part in a round."""
        return bool(stream(self.seed or 0, "server", round).random() < self.awake)

    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        return (theta,)

    def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
        after = self.inner.server_update(self._ahead(server), mean, turnout)
        theta = after.theta if self.is_awake(turnout.round) else server.theta
        return type(server)(*after._replace(theta=theta), after.theta)

    def invariant(self, server: Any, *, initial: Vector, registered: float) -> Invariant | None:
        found = invariant_of(self.inner, self._ahead(server), initial=initial, registered=registered)
        return None if found is None else found._replace(name="ahead")

    def _ahead(self, server: Any) -> Any:
        return self.inner_server(server)._replace(theta=server.ahead)
