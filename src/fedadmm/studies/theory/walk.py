"""A method at work on quadratics, with everything that the analysis speaks of at every round."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Message, Vector
from fedadmm.core.participation import Devices, Uniform
from fedadmm.core.round import ServerCheckpoint, run_client, run_round
from fedadmm.engine.planner import Planner
from fedadmm.runs.certificate import Certificate, certificate_of, share
from fedadmm.studies.theory.quadratics import NO_BUFFERS, Quadratics
from fedadmm.training.local import LocalTraining


class Path(NamedTuple):
    """All variables at t = 0, 1, ..., T, where t rounds are done; the client axis follows that of t."""

    active: torch.Tensor  # [T, client]: who takes part in the round that begins at t
    theta: Vector  # [T + 1, d]
    w: Vector  # [T + 1, client, d]
    y: Vector  # [T + 1, client, d]
    seen: torch.Tensor  # [T + 1, client]: visited at least once
    errors: torch.Tensor  # [T + 1, client]: epsilon_i of the last solve; before the first, |grad f_i(theta^0)|^2
    certificate: Certificate  # of [T + 1]

    @property
    def everyone(self) -> int:
        """The first t at which every client has been visited; T + 1 if there is none."""
        return int((~self.seen.all(dim=1)).sum())


def rounds(
    algorithm: AnyAlgorithm, task: Quadratics, *, theta: Vector, draws: Iterable[Iterable[int]], seed: int = 0
) -> Iterator[tuple[ServerCheckpoint, dict[int, Message]]]:
    """Play a round for each draw of clients; yield the server's checkpoint and the states of the clients visited."""
    checkpoint = ServerCheckpoint(0, algorithm.init_server(theta), NO_BUFFERS, 0.0)
    planner = Planner(
        algorithm, participation=Uniform(1.0), local=LocalTraining(), devices=Devices(len(task.targets)), seed=seed
    )
    states: dict[int, Message] = {}
    last: dict[int, int] = {}  # the rounds of the states
    applied: tuple[int, ...] | None = None
    for active in draws:
        answers = [
            run_client(
                algorithm,
                algorithm.download(checkpoint.server),
                assignment,
                state=states.get(assignment.client),
                initial=theta,
                problem=task.problem(assignment, buffers=NO_BUFFERS),
            )
            for assignment in planner.assigned(checkpoint.round + 1, active, informed=applied, last_round=last.get)
        ]
        new = {result.client: state for result, state in answers if result.finite}
        states |= new
        last |= dict.fromkeys(new, checkpoint.round + 1)
        checkpoint, summary = run_round(
            algorithm,
            checkpoint,
            [result for result, _ in answers],
            weight=lambda client: 1.0,
            registered=float(len(task.targets)),
        )
        applied = summary.clients
        yield checkpoint, new


def walk(algorithm: AnyAlgorithm, task: Quadratics, *, theta: Vector, draws: Sequence[Iterable[int]]) -> Path:
    """Return the path of a method whose clients keep w, y and rho, from w_i = theta^0 and y_i = 0 on."""
    length, (num_clients, dimension) = len(draws), task.targets.shape
    thetas = theta.expand(length + 1, -1).clone()
    w, y = theta.expand(length + 1, num_clients, -1).clone(), torch.zeros(length + 1, num_clients, dimension)
    y = y.to(theta.dtype)
    active = torch.zeros(length, num_clients, dtype=torch.bool)
    seen = torch.zeros(length + 1, num_clients, dtype=torch.bool)
    errors = task.gradients(w[0]).square().sum(dim=-1).expand(length + 1, -1).clone()
    for t, (checkpoint, new) in enumerate(rounds(algorithm, task, theta=theta, draws=draws)):
        thetas[t + 1] = checkpoint.server.theta
        for client, state in new.items():
            active[t, client] = True
            w[t + 1 :, client], y[t + 1 :, client] = state.w, state.y  # type: ignore[attr-defined]
            seen[t + 1 :, client] = True
            errors[t + 1 :, client] = task.tolerance(client, checkpoint.round)
    shares = share(
        w=w, y=y, theta=thetas, rho=algorithm.init_client(theta).rho, value=task.values(w), gradient=task.gradients(w)
    )
    return Path(active, thetas, w, y, seen, errors, certificate_of([(1.0, shares)]))
