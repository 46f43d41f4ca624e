"""Algorithms that let a test see what the contract promises."""

from typing import NamedTuple

from fedadmm.algorithms.fedavg import FedAvg, Server, Upload
from fedadmm.core.algorithm import Algorithm, LocalProblem, Turnout, Vector


class Memory(NamedTuple):
    """What a client knows by itself of its visits."""

    round: float  # of its last visit, 0 before the first
    wrong: float  # how often it was told otherwise


class Told(Algorithm[Server, Memory, Upload]):
    """FedAvg whose clients compare what a problem tells of their visits with what they remember."""

    def init_server(self, theta: Vector) -> Server:
        return Server(theta)

    def init_client(self, theta: Vector) -> Memory:
        return Memory(0.0, 0.0)

    def client_update(self, server: Server, client: Memory, problem: LocalProblem) -> tuple[Upload, Memory]:
        w = problem.solve(start=server.theta).w
        first = 1.0 * (client.round == 0)
        wrong = abs(problem.last_round - client.round) + abs(problem.first_visit - first)
        return Upload(w - server.theta), Memory(problem.round + 0 * client.round, client.wrong + wrong)

    def server_update(self, server: Server, mean: Upload, turnout: Turnout) -> Server:
        return Server(server.theta + mean.step)


class Doubled(FedAvg):
    """FedAvg whose model is twice theta."""

    def model(self, server: Server) -> Vector:
        return 2 * server.theta
