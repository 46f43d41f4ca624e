"""A look-ahead around another algorithm: clients start ahead of theta, and are held to theta itself (Nesterov, 1983).

theta     the server's model, and the centre of the inner algorithm's local problem
momentum  look_ahead (theta - theta before): what a client adds to the point from which it starts

FedACG broadcasts one point, which is both start and centre; here the two differ, at the price of one more vector down.
Without a centre there is no difference: around FedAvg it is FedACG without its proximal term.
"""

from typing import Any

from fedadmm.algorithms.wrapper import PLAIN, Wrapper, wider
from fedadmm.core.algorithm import AnyAlgorithm, LocalProblem, Solution, Turnout, Vector
from fedadmm.core.errors import InputError
from fedadmm.core.optional import GradientsOnly, StepsOfSGDOnly, trait
from fedadmm.core.schedules import Decay


class LookAhead(Wrapper):
    """The inner algorithm, whose clients start ahead of theta along the server's last step.

    look_ahead = 0.85: how far ahead along its last step the server looks, from 0 to below 1.
    inner = {name = "fedprox", rho = 0.1}: the algorithm.
    """

    look_ahead: Decay = 0.85
    inner: AnyAlgorithm = PLAIN

    memory = ("theta_before",)

    def check_inner(self) -> None:
        """Refuse an inner algorithm that solves nothing, or that reads a gradient off a step which began at theta."""
        super().check_inner()
        found: Any = trait(self.inner, GradientsOnly) or trait(self.inner, StepsOfSGDOnly)
        if found is not None:
            raise InputError(
                f"{type(found).__name__} needs clients that start at theta, and LookAhead moves the start; "
                "use it with FedAvg, FedProx, FedDyn or FedADMM"
            )

    def first_memory(self, theta: Vector) -> tuple[Vector, ...]:
        return (theta,)

    def download(self, server: Any) -> Any:
        inner = super().download(server)
        return wider("Download", inner, ("momentum",))(*inner, self.look_ahead * (server.theta - server.theta_before))

    def client_update(self, server: Any, client: Any, problem: LocalProblem) -> tuple[Any, Any]:
        *own, momentum = server
        inner_kind = type(self.inner.download(self.inner.init_server(server.theta)))
        return self.inner.client_update(inner_kind(*own), client, _StartsAhead(problem, momentum))

    def server_update(self, server: Any, mean: Any, turnout: Turnout) -> Any:
        after = self.inner.server_update(self.inner_server(server), mean, turnout)
        return type(server)(*after, server.theta)


class _StartsAhead:
    """A local problem whose solves start further along the momentum."""

    def __init__(self, problem: LocalProblem, momentum: Vector) -> None:
        self._problem, self._momentum = problem, momentum

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)

    def solve(self, *, start: Vector, **terms: Any) -> Solution:
        return self._problem.solve(start=start + self._momentum, **terms)
