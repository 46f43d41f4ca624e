"""FedADMM with mistakes that a run would not show: each must be caught by the analysis."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from fedadmm.algorithms import FedADMM
from fedadmm.algorithms.fedadmm import Client, Upload
from fedadmm.core.algorithm import LocalProblem, Turnout, Vector


@dataclass(frozen=True)
class WrongSign(FedADMM):
    """The dual steps the wrong way."""

    def client_update(self, server: Any, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        _, right = super().client_update(server, client, problem)
        wrong = right._replace(y=2 * client.y - right.y)
        return Upload(wrong.u - client.u), wrong


class TwoThetas(NamedTuple):
    theta: Vector
    before: Vector


@dataclass(frozen=True)
class StaleTheta(FedADMM):
    """Clients work with the theta of the round before."""

    def init_server(self, theta: Vector) -> Any:
        return TwoThetas(theta, theta)

    def client_update(self, server: Any, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        return super().client_update(server._replace(theta=server.before), client, problem)

    def server_update(self, server: Any, mean: Upload, turnout: Turnout) -> Any:
        return TwoThetas(super().server_update(server, mean, turnout).theta, server.theta)


@dataclass(frozen=True)
class StaleDual(StaleTheta):
    """Only the dual steps with the theta of the round before."""

    def client_update(self, server: Any, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        _, right = FedADMM.client_update(self, server, client, problem)
        wrong = right._replace(y=right.y + right.rho * (server.theta - server.before))
        return Upload(wrong.u - client.u), wrong


@dataclass(frozen=True)
class ForgetfulUpload(FedADMM):
    """The upload leaves out the dual."""

    def client_update(self, server: Any, client: Client, problem: LocalProblem) -> tuple[Upload, Client]:
        _, new = super().client_update(server, client, problem)
        return Upload(new.w - client.w), new


BROKEN = [WrongSign, StaleTheta, StaleDual, ForgetfulUpload]
